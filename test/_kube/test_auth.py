"""Which file, which context, which credentials; and what is said when one of them is wrong."""

from __future__ import annotations

import base64
import gc
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.answers import Answer, Server, kubeconfig
from fakes.certificates import make_certificate

from nemo_run._kube import auth
from nemo_run._kube.api import KubeApi
from nemo_run._kube.resources import POD
from nemo_run._kube.wire import Wire
from nemo_run.exceptions import ConfigError, Unreachable

SERVER = "https://kube.example:6443"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG")


def plugin(tmp_path: Path, *, body: str, name: str = "plugin") -> dict:
    """Give the user of an exec plugin that is a shell script beside the kubeconfig."""
    script = tmp_path / name
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"./{name}"}}


def granting(**status: object) -> str:
    granted = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"echo '{json.dumps(granted)}'"


class TestLocate:
    def test_the_default_is_in_the_home_directory(self, tmp_path):
        (tmp_path / ".kube").mkdir()
        assert auth.locate() == ()
        kubeconfig(tmp_path / ".kube" / "config", SERVER)
        assert auth.locate() == (tmp_path / ".kube" / "config",)

    def test_the_variable_counts_when_it_is_asked_for_and_may_list_files(self, tmp_path, monkeypatch):
        """Not when some library was imported; files that are not there are passed over, as kubectl does."""
        files = [kubeconfig(tmp_path / name, SERVER) for name in ("a", "b")]
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(files[0]), "", "~/missing", "~/b"]))
        assert auth.locate() == tuple(files)

    def test_a_variable_that_names_nothing_is_an_error(self, monkeypatch):
        """A typing error must not send a job to another cluster."""
        monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
        with pytest.raises(ConfigError) as caught:
            auth.locate()
        assert str(caught.value) == (
            "KUBECONFIG='/nowhere/config': no such file; unset it to use ~/.kube/config or the pod's own account"
        )

    def test_an_argument_counts_before_the_variable(self, tmp_path, monkeypatch):
        monkeypatch.setenv("KUBECONFIG", "/nowhere")
        file = kubeconfig(tmp_path / "mine", SERVER)
        assert auth.locate("~/mine") == auth.locate(file) == (file,)

    def test_an_argument_that_is_no_file_is_an_error(self):
        with pytest.raises(ConfigError, match=r"kubeconfig='~/missing': there is no such file"):
            auth.locate("~/missing")

    def test_a_local_cluster_is_used_whatever_was_asked_for(self, tmp_path, monkeypatch):
        local = kubeconfig(tmp_path / "local", "http://127.0.0.1:1", context="local")
        monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(local))
        monkeypatch.setenv("KUBECONFIG", "/nowhere")
        assert auth.locate("/nowhere/either") == (local,)
        assert auth.load([local], "production").context == "local"


class TestContext:
    def write(self, path: Path, **data: object) -> Path:
        path.write_text(json.dumps({"clusters": [], "contexts": [], "users": [], **data}))
        return path

    def cluster(self, name, server):
        return {"name": name, "cluster": {"server": server}}

    def context(self, name, cluster, **more):
        return {"name": name, "context": {"cluster": cluster, **more}}

    def test_the_current_one_unless_asked_for_another(self, tmp_path):
        file = self.write(
            tmp_path / "config",
            **{"current-context": "a"},
            clusters=[self.cluster("a", "http://a"), self.cluster("b", "http://b/")],
            contexts=[self.context("a", "a"), self.context("b", "b")],
        )
        assert [(c.server, c.context) for c in (auth.load([file]), auth.load([file], "b"))] == [
            ("http://a", "a"),
            ("http://b", "b"),
        ]

    def test_of_several_files_the_first_to_name_a_thing_wins(self, tmp_path):
        first = self.write(tmp_path / "1", clusters=[self.cluster("c", "http://first")])
        second = self.write(
            tmp_path / "2",
            **{"current-context": "x"},
            clusters=[self.cluster("c", "http://second")],
            contexts=[self.context("x", "c")],
        )
        assert auth.load([first, second]).server == "http://first"

    def test_one_that_is_not_there_is_an_error_that_lists_them(self, tmp_path):
        file = kubeconfig(tmp_path / "config", SERVER)
        with pytest.raises(ConfigError) as caught:
            auth.load([file], "prod")
        assert str(caught.value) == f"context='prod': {file} has: test"

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({}, "no current-context is set; give context=, one of: none"),
            ({"current-context": "x"}, "context 'x' is not in contexts; there: none"),
            (
                {"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c"}}]},
                "cluster 'c' is not in clusters; there: none",
            ),
            (
                {
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": SERVER}}],
                },
                "user 'u' is not in users; there: none",
            ),
            (
                {
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": {"cluster": "c"}}],
                    "clusters": [{"name": "c", "cluster": {"server": "kube.example"}}],
                },
                "server of the cluster of context 'x' is 'kube.example': not an http(s) address",
            ),
            ({"clusters": {"c": {}}}, "clusters must be a list of objects with name and cluster"),
            ({"users": [{"user": {}}]}, "users must be a list of objects with name and user"),
        ],
        ids=["none", "unknown", "no cluster", "no user", "no address", "no list", "no name"],
    )
    def test_a_broken_file_is_named_with_what_is_wrong(self, tmp_path, data, message):
        file = tmp_path / "config"
        file.write_text(json.dumps({"kind": "Config", **data}))
        with pytest.raises(Unreachable) as caught:
            auth.load([file])
        assert str(caught.value) == f"read kubeconfig: {file}: {message}"

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "the file is empty"),
            (b"- a\n", "not a kubeconfig: no mapping at its top"),
            (b"a: b\nusers: [{token: s3cret\nx: [}\n", "line 3: not YAML: "),
            (b"\xff\xfe", "not UTF-8 text at byte 0"),
        ],
        ids=["empty", "a list", "not YAML", "not text"],
    )
    def test_a_file_that_is_no_kubeconfig(self, tmp_path, data, message):
        """The message never quotes the file, which holds secrets."""
        file = tmp_path / "config"
        file.write_bytes(data)
        with pytest.raises(Unreachable) as caught:
            auth.load([file])
        assert f"{file}: {message}" in str(caught.value)
        assert "s3cret" not in str(caught.value)

    def test_a_file_that_cannot_be_read(self, tmp_path):
        with pytest.raises(Unreachable, match="Is a directory"):
            auth.load([tmp_path])


class TestUser:
    def headers(self, tmp_path, user):
        return auth.load([kubeconfig(tmp_path / "config", SERVER, user=user)]).headers()

    @pytest.mark.parametrize(
        ("user", "headers"),
        [
            ({}, []),
            ({"token": "t"}, [("authorization", "Bearer t")]),
            ({"tokenFile": "token", "token": "old"}, [("authorization", "Bearer from-file")]),
            ({"username": "u", "password": "p"}, [("authorization", "Basic dTpw")]),
            (
                {"token": "t", "as": "boss", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"x": ["1"]}},
                [
                    ("authorization", "Bearer t"),
                    ("Impersonate-User", "boss"),
                    ("Impersonate-Uid", "7"),
                    ("Impersonate-Group", "a"),
                    ("Impersonate-Group", "b"),
                    ("Impersonate-Extra-x", "1"),
                ],
            ),
        ],
        ids=["nobody", "token", "token file", "password", "someone else's name"],
    )
    def test_who_we_are(self, tmp_path, user, headers):
        (tmp_path / "token").write_text("from-file\n")
        assert self.headers(tmp_path, user) == headers

    def test_every_header_of_one_name_is_sent(self, tmp_path):
        with Server([Answer(200, {})]) as server:
            file = kubeconfig(tmp_path / "config", server.url, user={"as": "boss", "as-groups": ["a", "b"]})
            KubeApi(Wire(lambda: auth.load([file]))).get(POD, "ns", "x")
        assert server.requests[0].all_headers("Impersonate-Group") == ["a", "b"]

    @pytest.mark.parametrize("token", ["s3cret\nmore", "s3cret more", "s3cret\u2026", "s3cret\x00"])
    @pytest.mark.parametrize("where", ["token", "tokenFile"])
    def test_a_token_that_was_pasted_badly_is_told_without_it(self, tmp_path, token, where):
        """As a header it would be refused with an error that quotes it."""
        (tmp_path / "file").write_text(token)
        user = {"token": token} if where == "token" else {"tokenFile": "file"}
        with pytest.raises(Unreachable) as caught:
            self.headers(tmp_path, user)
        assert f"{tmp_path}/config: {where} has blanks, line breaks" in str(caught.value)
        assert "s3cret" not in str(caught.value)

    def test_a_token_file_that_is_no_text(self, tmp_path):
        (tmp_path / "token").write_bytes(b"\xff\xfe")
        with pytest.raises(Unreachable, match=r"config: tokenFile: .*/token: no text"):
            self.headers(tmp_path, {"tokenFile": "token"})

    def test_a_token_file_that_is_not_there(self, tmp_path):
        with pytest.raises(Unreachable, match=r"config: tokenFile: .*/token: No such file"):
            self.headers(tmp_path, {"tokenFile": "token"})

    def test_the_default_of_other_code_is_not_ours(self, tmp_path):
        """A script may have set the kubernetes package's global configuration."""
        from kubernetes.client import Configuration

        other = Configuration()
        other.api_key["authorization"] = "Bearer other"
        Configuration.set_default(other)
        try:
            assert self.headers(tmp_path, {}) == []
        finally:
            Configuration.set_default(None)


class TestCertificates:
    def test_of_the_kubeconfig_are_found_beside_it(self, tmp_path, monkeypatch, certificate):
        """Relative paths are meant from the kubeconfig's directory, wherever we run."""
        (tmp_path / "ca").write_bytes(certificate.ca.read_bytes())
        (tmp_path / "elsewhere").mkdir()
        file = kubeconfig(tmp_path / "config", SERVER, cluster={"certificate-authority": "ca"})
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert auth.load([Path("../config")]).configuration.ssl_ca_cert == str(tmp_path / "ca")
        assert auth.load([file]).configuration.ssl_ca_cert == str(tmp_path / "ca")

    def test_inside_the_kubeconfig_are_for_our_eyes_only_and_do_not_stay(self, tmp_path, certificate):
        pems = [certificate.cert.read_bytes(), certificate.key.read_bytes()]
        data = {"client-certificate-data": b64(pems[0]), "client-key-data": b64(pems[1])}
        credentials = auth.load([kubeconfig(tmp_path / "config", SERVER, user=data)])
        files = [Path(credentials.configuration.cert_file), Path(credentials.configuration.key_file)]
        assert [file.read_bytes() for file in files] == pems
        assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700
        del credentials
        gc.collect()
        assert not files[0].parent.exists()

    @pytest.mark.parametrize(
        ("cluster", "message"),
        [
            ({"certificate-authority": "gone"}, "certificate-authority: {dir}/gone is not there"),
            ({"certificate-authority-data": "QUJD!"}, "certificate-authority-data is not base64"),
        ],
        ids=["missing", "broken"],
    )
    def test_that_are_not_there_are_an_error(self, tmp_path, cluster, message):
        file = kubeconfig(tmp_path / "config", SERVER, cluster=cluster)
        with pytest.raises(Unreachable) as caught:
            auth.load([file])
        assert str(caught.value) == f"read kubeconfig: {file}: {message.format(dir=tmp_path)}"

    @pytest.mark.parametrize(
        ("cluster", "user", "message"),
        [
            ({"certificate-authority-data": b64(b"no PEM")}, {}, "certificate-authority is no certificate in PEM form"),
            (
                {},
                {"client-certificate-data": b64(b"no PEM"), "client-key-data": b64(b"s3cret")},
                "client-certificate and client-key are no pair",
            ),
            (
                {},
                {"client-certificate-data": "cert", "client-key-data": b64(b"s3cret")},
                "client-certificate and client-key are no pair",
            ),
            ({}, {"client-certificate-data": "cert"}, "there is a client-certificate, but no client-key; log in"),
            ({}, {"client-key-data": b64(b"s3cret")}, "there is a client-key, but no client-certificate; log in"),
        ],
        ids=["authority", "certificate", "key", "no key", "no certificate"],
    )
    def test_that_are_none_are_told_with_their_file(self, tmp_path, certificate, cluster, user, message):
        """Before ssl is to use them: it would name neither file nor field, or ask for a password."""
        user = {key: b64(certificate.cert.read_bytes()) if value == "cert" else value for key, value in user.items()}
        file = kubeconfig(tmp_path / "config", SERVER, cluster=cluster, user=user)
        with pytest.raises(Unreachable) as caught:
            auth.load([file])
        assert str(caught.value).startswith(f"read kubeconfig: {file}: {message}")
        assert "s3cret" not in str(caught.value)

    def test_that_the_server_refuses_are_read_anew_once(self, tmp_path, certificate):
        """One that has expired, or that another authority signed, and the one that a login has written since."""
        (tmp_path / "old").mkdir()
        old = make_certificate(tmp_path / "old")
        file = tmp_path / "config"
        loads = []

        def load():
            made = certificate if loads else old
            loads.append(made)
            user = {"client-certificate": str(made.cert), "client-key": str(made.key)}
            kubeconfig(file, server.url, cluster={"certificate-authority": str(certificate.ca)}, user=user)
            return auth.load([file])

        tls = (certificate.cert, certificate.key)
        with Server([Answer(200, {})], tls=tls, client_ca=certificate.ca) as server:
            assert KubeApi(Wire(load)).get(POD, "ns", "x") == {}
        assert len(loads) == 2

    def test_are_shown_to_the_server_that_asks_for_them(self, tmp_path, certificate):
        made = certificate
        with Server([Answer(200, {})], tls=(made.cert, made.key), client_ca=made.ca) as server:
            data = {
                "client-certificate-data": base64.b64encode(made.cert.read_bytes()).decode(),
                "client-key-data": base64.b64encode(made.key.read_bytes()).decode(),
            }
            cluster = {"certificate-authority-data": base64.b64encode(made.ca.read_bytes()).decode()}
            file = kubeconfig(tmp_path / "config", server.url, cluster=cluster, user=data)
            assert KubeApi(Wire(lambda: auth.load([file]))).get(POD, "ns", "x") == {}

    def test_need_not_be_checked(self, tmp_path):
        file = kubeconfig(
            tmp_path / "config", SERVER, cluster={"insecure-skip-tls-verify": True, "certificate-authority": "gone"}
        )
        configuration = auth.load([file]).configuration
        assert (configuration.verify_ssl, configuration.ssl_ca_cert) == (False, None)


class TestExecPlugin:
    def load(self, tmp_path, user):
        return auth.load([kubeconfig(tmp_path / "config", SERVER, user=user)])

    def test_grants_a_token(self, tmp_path):
        credentials = self.load(tmp_path, plugin(tmp_path, body=granting(token="t")))
        assert (credentials.headers(), credentials.stale()) == ([("authorization", "Bearer t")], False)

    def test_grants_a_certificate(self, tmp_path, certificate):
        cert, key = certificate.cert.read_text(), certificate.key.read_text()
        (tmp_path / "granted").write_text(granting(clientCertificateData=cert, clientKeyData=key)[6:-1])
        user = plugin(tmp_path, body="cat granted")
        credentials = self.load(tmp_path, user)
        assert credentials.headers() == []
        assert Path(credentials.configuration.cert_file).read_text() == cert
        assert Path(credentials.configuration.key_file).read_text() == key

    def test_is_run_again_before_what_it_granted_runs_out(self, tmp_path):
        def granted(seconds):
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
            return granting(token="t$(wc -l < runs)".replace("$", "'$").replace(")", ")'"), expirationTimestamp=moment)

        with Server(lambda asked: Answer(200, {})) as server:
            file = kubeconfig(
                tmp_path / "config", server.url, user=plugin(tmp_path, body=f"echo >> runs; {granted(30)}")
            )
            api = KubeApi(Wire(lambda: auth.load([file])))
            plugin(tmp_path, body=f"echo >> runs; {granted(3600)}")
            for _ in range(3):
                api.get(POD, "ns", "x")
        assert [asked.headers["authorization"] for asked in server.requests] == ["Bearer t2"] * 3

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("echo 'please log in' >&2; exit 3", "failed: exec: process returned 3. please log in"),
            ("echo nonsense", "failed: exec: failed to decode process output: "),
            ("printf 's3cret \\377'", "granted neither a token nor a certificate"),
            ("echo 3", "failed: "),
            ("echo '{}'", "failed: exec: malformed response. missing key 'apiVersion'"),
            (granting(), "granted neither a token nor a certificate; log in again"),
            (granting(token={"a": "s3cret"}), "granted a token that is no text"),
        ],
        ids=["fails", "prints something else", "prints bytes", "prints a number", "no answer", "nothing", "no text"],
    )
    def test_that_fails_is_an_error_and_not_nobody(self, tmp_path, body, message):
        """The kubernetes package goes on without credentials, and the server then refuses "anonymous"."""
        with pytest.raises(Unreachable) as caught:
            self.load(tmp_path, plugin(tmp_path, body=body))
        assert f"{tmp_path}/config: exec plugin './plugin' {message}" in str(caught.value)
        assert "s3cret" not in str(caught.value)
        assert "s3cret" not in repr(caught.value.__cause__)
        assert (caught.value.__cause__ or caught.value).__context__ is None

    def test_that_fails_on_a_terminal_has_said_so_there(self, tmp_path, monkeypatch, capfd):
        """There the plugin may ask questions, so that what it says is not kept."""
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stderr", sys.__stderr__)
        user = plugin(tmp_path, body="echo 'please log in' >&2; exit 3")
        with open(os.devnull) as nothing:
            monkeypatch.setattr(sys, "stdin", nothing)
            with pytest.raises(Unreachable, match=r"exec plugin '\./plugin' failed; what it said is above"):
                self.load(tmp_path, user)
        assert "please log in" in capfd.readouterr().err

    @pytest.mark.parametrize("config", [[], {}, {"apiVersion": "v1"}], ids=["a list", "empty", "no command"])
    def test_that_is_not_described_is_an_error(self, tmp_path, config):
        with pytest.raises(Unreachable, match="config: exec must be an object with command and apiVersion"):
            self.load(tmp_path, {"exec": config})

    def test_with_a_broken_environment_is_an_error(self, tmp_path):
        user = plugin(tmp_path, body=granting(token="t"))
        user["exec"]["env"] = [{"name": "X"}]
        with pytest.raises(Unreachable, match=r"exec plugin '\./plugin' failed: .*key value in exec/env/0"):
            self.load(tmp_path, user)

    def test_that_is_slow_is_told_of_once(self, tmp_path, monkeypatch, caplog):
        """It may wait for a login in a browser that nobody has noticed."""
        monkeypatch.setattr(auth, "SLOW_PLUGIN", 0.05)
        self.load(tmp_path, plugin(tmp_path, body=f"sleep 1; {granting(token='t')}"))
        told = f"{tmp_path}/config: exec plugin './plugin': waiting for it; it may want a login"
        assert caplog.messages == [told]

    def test_whose_token_is_refused_is_run_again_once(self, tmp_path):
        """A session that was ended before its time."""

        def answer(asked):
            if asked.headers["authorization"] == "Bearer t2":
                return Answer(200, {})
            return Answer(401, {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"})

        token = granting(token="t$(wc -l < runs)".replace("$", "'$").replace(")", ")'"))
        with Server(answer) as server:
            user = plugin(tmp_path, body=f"echo >> runs; {token}")
            file = kubeconfig(tmp_path / "config", server.url, user=user)
            assert KubeApi(Wire(lambda: auth.load([file]))).get(POD, "ns", "x") == {}
        assert [asked.headers["authorization"] for asked in server.requests] == ["Bearer t1", "Bearer t2"]

    def test_that_is_not_installed_says_how_to(self, tmp_path):
        user = {"exec": {"apiVersion": "v1", "command": "no-such-plugin", "installHint": "install it from somewhere"}}
        with pytest.raises(Unreachable, match="exec plugin 'no-such-plugin' is not there: install it from somewhere"):
            self.load(tmp_path, user)


class TestAuthProvider:
    def token(self, expires):
        def part(data):
            return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")

        return f"{part({'alg': 'none'})}.{part({'exp': expires, 'pad': '1' * 20})}.sig"

    def test_is_left_to_the_kubernetes_package(self, tmp_path):
        token = self.token(time.time() + 3600)
        user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
        credentials = auth.load([kubeconfig(tmp_path / "config", SERVER, user=user)])
        assert credentials.headers() == [("authorization", f"Bearer {token}")]

    def test_its_trouble_is_ours(self, tmp_path):
        user = {"auth-provider": {"name": "oidc", "config": {}}}
        with pytest.raises(Unreachable, match=r"config: .*id-token"):
            auth.load([kubeconfig(tmp_path / "config", SERVER, user=user)])


class TestServiceAccount:
    def test_is_used_only_without_any_kubeconfig(self, tmp_path, monkeypatch):
        from kubernetes.config import incluster_config

        for name, text in (("TOKEN", "t\n"), ("CERT", "CA")):
            (tmp_path / name).write_text(text.strip())
            monkeypatch.setattr(incluster_config, f"SERVICE_{name}_FILENAME", str(tmp_path / name))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
        credentials = auth.load(auth.locate())
        assert (credentials.server, credentials.context) == ("https://10.96.0.1:443", "in-cluster")
        assert [(name, value.lower()) for name, value in credentials.headers()] == [("authorization", "bearer t")]
        assert credentials.configuration.proxy is None
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube/config").write_text("broken")
        with pytest.raises(Unreachable, match=r"\.kube/config: not a kubeconfig"):
            auth.load(auth.locate())

    def test_nothing_at_all_says_what_was_looked_for(self):
        with pytest.raises(Unreachable) as caught:
            auth.load(auth.locate())
        assert str(caught.value) == (
            "find a cluster: KUBECONFIG is not set, ~/.kube/config does not exist, and this is no pod with a service"
            " account (Service host/port is not set.); give kubeconfig=, or log in to a cluster first"
        )


def test_the_proxy_of_the_kubeconfig_counts_before_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://env:1")
    monkeypatch.setenv("NO_PROXY", "kube.example")
    file = kubeconfig(tmp_path / "config", SERVER, cluster={"proxy-url": "http://mine:1"})
    credentials = auth.load([file])
    assert credentials.configuration.proxy == "http://mine:1"
    assert type(credentials.pool).__name__ == "ProxyManager"
    assert auth.load([kubeconfig(file, SERVER)]).configuration.proxy is None


def test_importing_does_not_bring_the_kubernetes_package_in():
    code = "import nemo_run._kube.api, sys; print(sorted({'kubernetes', 'urllib3', 'yaml'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
