"""Secrets on their way to a job: where they may be, and that they are nowhere else."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from fakes.certificates import make_certificate

CLIENT = r'''
"""Launches jobs in every way, with secrets from everywhere, and prints what each error says with all its causes."""
import io, json, logging, os, sys, traceback
from pathlib import Path

logging.basicConfig(level=logging.DEBUG, filename=os.environ["DEBUG_LOG"])
logging.getLogger("nemo_run").setLevel(logging.DEBUG)

import nemo_run as run
from nemo_run._kube.api import connect
from nemo_run._kube.resources import Resource
from nemo_run.testing import LocalKube, Pod, Respond

TOKENS = json.loads(os.environ["TOKENS"])
SECRET = Resource("", "v1", "secrets", "Secret")


def executor(**changes):
    fields = {
        "image": "python:3.12",
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
        "env_vars": {"HF_TOKEN": TOKENS["env_vars"], "OWN_TOKEN": TOKENS["printed"]},
        "env_list": [
            {"name": "MY_PASSWORD", "value": TOKENS["env_list"]},
            {"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "api"}}},
        ],
        "image_pull_secrets": ["registry"],
    }
    return run.KubeflowExecutor(**{**fields, **changes})


def script(text):
    return run.Script(inline=text, env={"WANDB_API_KEY": TOKENS["script"]})


def tried(what, act, *faults):
    print("=====", what, flush=True)
    with kube.fault(*faults):
        try:
            act()
        except BaseException as error:
            print(type(error).__name__, error, repr(error), error.args)
            traceback.print_exception(error)
            cause = error
            while cause is not None:
                print(repr(cause), vars(cause))
                cause = cause.__cause__ or cause.__context__


def launched(name, text, **how):
    return lambda: run.run(script(text), executor=how.pop("executor", None) or executor(), name=name, **how)


def looked(name):
    experiment = run.Experiment.from_title(name)
    experiment.status()
    experiment.logs(name)
    (job,) = experiment.jobs
    print(job, job.executor, job.executor.info())
    trainjob = job.handle.rpartition("___")[2]
    print(job.executor.report(trainjob), list(job.executor.fetch_logs(trainjob)))
    job.executor.pull_results(trainjob)


with LocalKube(images={"alpine*": "busybox"}, claims=["shared"], home=Path(os.environ["KUBE"])) as kube:
    for name, data in (("keys", {"api": TOKENS["secret"]}), ("registry", {".dockerconfigjson": TOKENS["registry"]})):
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
        kube.do(lambda store, body=body: store.create(SECRET, "default", body))
    # The same cluster, through a kubeconfig with secrets of every kind.
    config = json.loads(kube.kubeconfig.read_text())
    plugin = Path(os.environ["PLUGIN"])
    plugin.write_text("#!/bin/sh\n" + os.environ["GRANT"].replace("REAL_TOKEN", kube._cluster.token))
    plugin.chmod(0o700)
    config["users"] = [{"name": config["users"][0]["name"], "user": {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)},
        "client-certificate-data": TOKENS["certificate"], "client-key-data": TOKENS["key"],
    }}]
    kubeconfig = Path(os.environ["KUBECONFIG"])
    kubeconfig.write_text(json.dumps(config))
    os.environ["NEMO_RUN_LOCAL_KUBE"] = str(kubeconfig)
    Path(os.environ["REAL"]).write_text(kube._cluster.token)

    tried("a job that succeeds", launched("good", 'echo "own $OWN_TOKEN"; echo 1 > $NEMO_RUN_DIR/result'))
    tried("looking at it", lambda: looked("good"))
    tried("a job that fails", launched("bad", "exit 3", raise_on_failure=True))
    tried("a dry run", launched("dry", "true", dryrun=True))
    tried("a dry run without a workdir", launched("dry2", "true", dryrun=True, executor=executor(
        workdir_volume_mount=None)))
    tried("a detached job", launched("away", "sleep 60", detach=True))
    tried("its end", lambda: run.Experiment.from_title("away").cancel("away"))
    quoted = f'spec.trainer.env: Invalid value: "{TOKENS["env_vars"]}": and {TOKENS["script"]}, {TOKENS["env_list"]}'
    tried("a refusal that quotes", launched("refused", "true"), Respond(422, on="POST */trainjobs", message=quoted))
    tried("no right", launched("right", "true"), Respond(403, on="POST */pods"))
    tried("no session", launched("session", "true"), Respond(401))
    tried("no image", launched("image", "true", executor=executor(data_mover_timeout=2)),
          Pod("*-data-mover*", "ImagePullBackOff"))
    tried("a wrong value", launched("wrong", "true", executor=executor(env_vars={"A_TOKEN": [TOKENS["env_vars"]]})))
    kubeconfig.write_text(kubeconfig.read_text().replace('"exec"', '"exec').replace("}", "}\n"))
    tried("a broken kubeconfig", launched("broken", "true"))
    config["users"][0]["user"] = {"token": TOKENS["pasted"] + "\nmore"}
    kubeconfig.write_text(json.dumps(config))
    tried("a token pasted badly", launched("pasted", "true"))
    plugin.write_text(f"#!/bin/sh\necho {TOKENS['garbage']}\n")
    config["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    kubeconfig.write_text(json.dumps(config))
    tried("a plugin that prints no answer", launched("garbage", "true"))
'''

GRANT = """
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "REAL_TOKEN"}}'
"""
PLANTED = ("env_vars", "script", "env_list", "secret", "registry", "pasted", "garbage")


def texts(path: Path) -> str:
    """Give what a file holds, also of what is packed in it as an experiment packs configurations."""
    raw = path.read_bytes()
    found = [raw]
    for word in re.findall(rb"[A-Za-z0-9+/=_-]{40,}", raw):
        for decode in (base64.b64decode, base64.urlsafe_b64decode):
            try:
                found.append(zlib.decompress(decode(word)))
            except (ValueError, zlib.error):
                continue
    return b"\n".join(found).decode("utf-8", "replace")


def holding(directory: Path, secrets: dict[str, str]) -> dict[Path, list[str]]:
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    held = {path: [name for name, secret in secrets.items() if secret in texts(path)] for path in files}
    return {path: names for path, names in held.items() if names}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run the client once; give its directory, what it wrote, and all secrets by where they come from."""
    root = tmp_path_factory.mktemp("secrets")
    made = make_certificate(root)
    tokens = {name: f"planted-{name.replace('_', '')}-{os.urandom(8).hex()}" for name in (*PLANTED, "printed")}
    key = made.key.read_text()
    files = {"certificate": made.cert, "key": made.key}
    sent = {**tokens, **{name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}}
    for name in ("tmp", "kube", "cwd"):
        (root / name).mkdir()
    paths = {
        "TMPDIR": root / "tmp",
        "HOME": root / "cwd",
        "NEMORUN_HOME": root / "nemorun",
        "KUBE": root / "kube",
        "KUBECONFIG": root / "kubeconfig",
        "PLUGIN": root / "plugin",
        "REAL": root / "real",
        "DEBUG_LOG": root / "debug.log",
    }
    environment = {**os.environ, **{name: str(path) for name, path in paths.items()}}
    environment |= {"TOKENS": json.dumps(sent), "GRANT": GRANT, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    environment.pop("NEMO_RUN_LOCAL_KUBE", None)
    (root / "client.py").write_text(CLIENT)
    done = subprocess.run(
        [sys.executable, root / "client.py"], env=environment, cwd=root / "cwd", capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    secrets = {name: tokens[name] for name in PLANTED}
    secrets |= {"plugin": (root / "real").read_text(), "client key": key.splitlines()[1], "packed key": sent["key"]}
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done, secrets, tokens["printed"]


def test_nothing_that_is_printed_logged_or_raised_holds_a_secret(ran):
    root, done, secrets, _ = ran
    logged = (root / "debug.log").read_text()
    for what, text in (("stdout", done.stdout), ("stderr", done.stderr), ("log records", logged)):
        lines = [line for line in text.splitlines() if any(secret in line for secret in secrets.values())]
        assert lines == [], what
    assert len(re.findall("^=====", done.stdout, re.MULTILINE)) == 15
    for expected in (
        "SUCCEEDED",
        "JobFailed",
        "Rejected",
        "NotAuthorized",
        "WaitTimeout",
        "ConfigError",
        "Unreachable",
    ):
        assert expected in done.stdout


def test_files_that_must_hold_one_are_the_owners_alone(ran):
    """The record of a launched job has its executor, whose env_vars and env_list are part of it."""
    root, _, secrets, printed = ran
    held = holding(root / "nemorun", {**secrets, "printed": printed})
    modes = {str(path.relative_to(root)): oct(stat.S_IMODE(path.stat().st_mode)) for path in held}
    logs = {path for path in modes if path.endswith("log-allranks_0.out")}
    assert {path: mode for path, mode in modes.items() if mode != "0o600" and path not in logs} == {}
    kept = {name for names in held.values() for name in names}
    assert kept <= {"env_vars", "script", "env_list", "printed"}


def test_none_is_left_in_temporary_files_or_where_the_script_ran(ran):
    root, *_ = ran
    assert [str(path) for path in (root / "tmp").rglob("*")] == []
    assert [str(path) for path in (root / "cwd").rglob("*") if path.is_file()] == []


def test_none_is_copied_to_the_volume(ran):
    root, _, secrets, printed = ran
    (volume,) = [path for path in (root / "kube").rglob("shared") if path.is_dir()]
    assert list(volume.rglob("launch.sh"))
    assert holding(volume, {**secrets, "printed": printed}) == {}


def test_a_jobs_own_output_is_never_changed(ran):
    root, done, _, printed = ran
    assert f"good/0 own {printed}" in done.stdout
    (log,) = (root / "nemorun").rglob("good/log-allranks_0.out")
    assert f"own {printed}\n" in log.read_text()
