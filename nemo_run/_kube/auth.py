"""
Where the cluster is and who we are there: a kubeconfig, or a pod's service account.

The kubeconfig is read here, since the ``kubernetes`` package reads ``KUBECONFIG``
once at import, goes on without credentials when an exec plugin fails, and names
no file in its errors. Its own loader is used for what has state of its own:
auth providers (OIDC writes refreshed tokens back) and service accounts.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import shutil
import ssl
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from nemo_run._kube.proxies import proxy_for
from nemo_run.exceptions import ConfigError, Unreachable

logger = logging.getLogger("nemo_run")

Json = dict[str, Any]

LOCAL_KUBE = "NEMO_RUN_LOCAL_KUBE"
"""While this names a kubeconfig, it is used whatever was asked for: a trial never reaches a real cluster."""
IN_CLUSTER = "in-cluster"
"""The context's name where a pod's service account is used."""
EXPIRY_MARGIN = 60.0
"""Seconds before their expiry at which an exec plugin's credentials are renewed."""
SLOW_PLUGIN = 10.0
"""Seconds after which it is said that an exec plugin is waited for."""
_GRANTED = ("token", "clientCertificateData", "clientKeyData")
POOL_SIZE = 64
"""Connections kept for one server; each followed log holds one."""


class PemFiles:
    """Files of our own for certificates that stand in the kubeconfig: ssl reads only files. Gone with this object."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def write(self, name: str, pem: bytes) -> str:
        """Write one, for our eyes only, and give its path."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="nemo_run-"))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        path = self._directory / name
        path.write_bytes(pem)
        return str(path)


@dataclass(frozen=True)
class Credentials:
    """What one look at the configuration gave: the server, and how to speak to it."""

    server: str
    context: str
    configuration: Any
    """A ``kubernetes.client.Configuration``, its proxy already decided."""
    extra_headers: tuple[tuple[str, str], ...] = ()
    expires: float | None = None
    """Seconds since the epoch, where an exec plugin said so."""
    files: PemFiles | None = field(default=None, repr=False)
    """Kept, so that the certificates' files live as long as this object."""

    @cached_property
    def pool(self) -> Any:
        """Give the urllib3 pool that speaks to the server."""
        from kubernetes.client.rest import RESTClientObject
        from urllib3.util.ssl_ import create_urllib3_context

        pool = RESTClientObject(self.configuration).pool_manager
        if self.configuration.verify_ssl and self.configuration.ssl_ca_cert:
            # Python 3.13 asks of a certificate what many clusters' own authorities left out, and kubectl does not ask.
            context = create_urllib3_context()
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            pool.connection_pool_kw["ssl_context"] = context
        return pool

    def headers(self) -> list[tuple[str, str]]:
        """Give the headers that say who we are; a service account's token is read afresh each minute."""
        # Not auth_settings(): that of kubernetes 36.0.0 does not know what its own loaders write. One name at a time:
        # that of 29 takes no second.
        key_of = self.configuration.get_api_key_with_prefix
        key = key_of("authorization") or key_of("BearerToken")
        return [*([("authorization", key)] if key else []), *self.extra_headers]

    def stale(self) -> bool:
        """Tell whether the credentials have run out, or are about to."""
        return self.expires is not None and time.time() > self.expires - EXPIRY_MARGIN


def locate(kubeconfig: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """
    Give the kubeconfig files to merge; none at all means the pod's service account.

    Raises:
        ConfigError: a file that was asked for is not there.
    """
    if local := os.environ.get(LOCAL_KUBE):
        return (Path(local),)
    if kubeconfig:
        path = _path(os.fspath(kubeconfig))
        if not path.is_file():
            raise ConfigError("kubeconfig", os.fspath(kubeconfig), "there is no such file")
        return (path,)
    listed = os.environ.get("KUBECONFIG", "")
    named = [_path(part) for part in listed.split(os.pathsep) if part]
    found = tuple(path for path in named if path.exists())
    if named and not found:
        raise ConfigError("KUBECONFIG", listed, "no such file; unset it to use ~/.kube/config or the pod's own account")
    default = _path("~/.kube/config")
    return found or ((default,) if default.exists() else ())


def load(files: Sequence[Path], context: str | None = None) -> Credentials:
    """
    Give the credentials that *files* hold for *context* (none: the current one).

    Raises:
        ConfigError: *context* is not in the files.
        Unreachable: a file is broken, an exec plugin failed, or there is no configuration.
    """
    if not files:
        return _service_account()
    config = _Kubeconfig(files)
    if os.environ.get(LOCAL_KUBE):
        context = None
    name = context or config.current
    if not name:
        raise config.broken(f"no current-context is set; give context=, one of: {config.names('contexts')}")
    if context and context not in config.entries["contexts"]:
        raise ConfigError("context", context, f"{config.shown} has: {config.names('contexts')}")
    chosen = config.entry("contexts", name)
    cluster = config.entry("clusters", str(chosen.body.get("cluster") or ""))
    user = config.entry("users", str(chosen.body["user"])) if chosen.body.get("user") else _Entry({}, chosen.file)
    return _credentials(config, name, cluster, user)


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))


@dataclass(frozen=True)
class _Entry:
    body: Json
    file: Path

    def beside(self, path: str) -> str:
        """Give *path* as the kubeconfig means it: relative to its own directory."""
        return os.path.join(os.path.abspath(self.file.parent), path)

    def error(self, message: str) -> Unreachable:
        return Unreachable("read kubeconfig", f"{self.file}: {message}")


class _Kubeconfig:
    """Several kubeconfig files as one: the first to name a thing wins, as with kubectl."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = files
        self.shown = os.pathsep.join(map(str, files))
        self.current = ""
        self.entries: dict[str, dict[str, _Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
        for file in files:
            self._add(file)

    def broken(self, message: str) -> Unreachable:
        return Unreachable("read kubeconfig", f"{self.shown}: {message}")

    def names(self, section: str) -> str:
        return ", ".join(sorted(self.entries[section])) or "none"

    def entry(self, section: str, name: str) -> _Entry:
        try:
            return self.entries[section][name]
        except KeyError:
            raise self.broken(f"{section[:-1]} {name!r} is not in {section}; there: {self.names(section)}") from None

    def _add(self, file: Path) -> None:
        data = _read(file)
        self.current = self.current or str(data.get("current-context") or "")
        for section, entries in self.entries.items():
            key = section[:-1]
            items = data.get(section) or []
            if not isinstance(items, list) or not all(_is_item(item, key) for item in items):
                raise _Entry({}, file).error(f"{section} must be a list of objects with name and {key}")
            for item in items:
                entries.setdefault(str(item["name"]), _Entry(item[key] or {}, file))


def _is_item(item: Any, key: str) -> bool:
    return isinstance(item, dict) and "name" in item and isinstance(item.get(key, ""), dict | None)


def _read(file: Path) -> Json:
    import yaml

    error = _Entry({}, file).error
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as problem:
        # Not str(problem): that quotes the line, which may hold a token.
        mark = getattr(problem, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise error(f"{where}not YAML: {getattr(problem, 'problem', None) or type(problem).__name__}") from None
    except UnicodeDecodeError as problem:
        raise error(f"not UTF-8 text at byte {problem.start}") from None
    except OSError as problem:
        raise error(problem.strerror or str(problem)) from problem
    if not isinstance(data, dict):
        raise error("the file is empty" if data is None else "not a kubeconfig: no mapping at its top")
    return data


def _credentials(config: _Kubeconfig, context: str, cluster: _Entry, user: _Entry) -> Credentials:
    server = cluster.body.get("server")
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise cluster.error(f"server of the cluster of context {context!r} is {server!r}: not an http(s) address")
    configuration = new_configuration()
    expires = None
    identity = user.body
    if "auth-provider" in identity:
        _load_with_library(config, context, configuration)
    elif "exec" in identity and not (identity.get("token") or identity.get("tokenFile")):
        granted = _run_plugin(user, cluster)
        expires = _moment(granted.get("expirationTimestamp"))
        identity = {**identity, **_as_identity(granted)}
    files = PemFiles()
    configuration.host = server.rstrip("/")
    if authorization := _authorization(_Entry(identity, user.file)):
        configuration.api_key["authorization"] = authorization
    _set_tls(configuration, cluster, _Entry(identity, user.file), files)
    configuration.proxy = cluster.body.get("proxy-url") or proxy_for(configuration.host, os.environ)
    configuration.no_proxy = None
    return Credentials(configuration.host, context, configuration, _impersonation(identity), expires, files)


def new_configuration() -> Any:
    """Give a fresh Configuration, not a copy of the default that other code may have set."""
    from kubernetes.client import Configuration

    configuration = type.__call__(Configuration)
    configuration.connection_pool_maxsize = POOL_SIZE
    return configuration


def _set_tls(configuration: Any, cluster: _Entry, user: _Entry, files: PemFiles) -> None:
    if cluster.body.get("insecure-skip-tls-verify"):
        configuration.verify_ssl = False
    else:
        configuration.ssl_ca_cert = _pem(cluster, "certificate-authority", files)
    configuration.cert_file = _pem(user, "client-certificate", files)
    configuration.key_file = _pem(user, "client-key", files)
    _check_pem(cluster, user, configuration)
    configuration.tls_server_name = cluster.body.get("tls-server-name")


def _pem(entry: _Entry, key: str, files: PemFiles) -> str | None:
    """Give the file that holds *key*."""
    if data := entry.body.get(f"{key}-data"):
        try:
            return files.write(key, base64.b64decode("".join(str(data).split()), validate=True))
        except binascii.Error as problem:
            raise entry.error(f"{key}-data is not base64") from problem
    if name := entry.body.get(key):
        path = Path(entry.beside(name))
        if not path.is_file():
            raise entry.error(f"{key}: {path} is not there")
        return str(path)
    return None


def _check_pem(cluster: _Entry, user: _Entry, configuration: Any) -> None:
    """
    Make sure that ssl can read the certificates: it names no file when they are used, and may ask for a password.

    Raises:
        Unreachable: it cannot.
    """
    ca, cert, key = configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca:
        try:
            context.load_verify_locations(ca)
        except (ssl.SSLError, OSError) as problem:
            raise cluster.error(f"certificate-authority is no certificate in PEM form ({problem})") from problem
    if bool(cert) != bool(key):
        there, missing = ("client-certificate", "client-key") if cert else ("client-key", "client-certificate")
        raise user.error(f"there is a {there}, but no {missing}; log in to the cluster again")
    if cert:
        try:
            context.load_cert_chain(cert, key, password=lambda: "")
        except (ssl.SSLError, OSError) as problem:
            what = "client-certificate and client-key are no pair of certificate and unencrypted key in PEM form"
            raise user.error(f"{what} ({problem}); log in to the cluster again") from problem


def _authorization(user: _Entry) -> str:
    body = user.body
    if name := body.get("tokenFile"):
        try:
            return _bearer(user, "tokenFile", Path(user.beside(name)).read_text().strip())
        except (OSError, UnicodeDecodeError) as problem:
            said = getattr(problem, "strerror", None) or "no text"
            raise user.error(f"tokenFile: {user.beside(name)}: {said}") from problem
    if token := body.get("token"):
        return _bearer(user, "token", str(token))
    if body.get("username"):
        pair = f"{body['username']}:{body.get('password', '')}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ""


def _bearer(user: _Entry, key: str, token: str) -> str:
    # http.client would refuse it as well, and quote it.
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise user.error(f"{key} has blanks, line breaks or other characters that no token has; log in again")
    return f"Bearer {token}"


def _impersonation(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headers = [("Impersonate-User", user["as"])] if user.get("as") else []
    headers += [("Impersonate-Uid", user["as-uid"])] if user.get("as-uid") else []
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or []]
    extras = (user.get("as-user-extra") or {}).items()
    return (*headers, *((f"Impersonate-Extra-{key}", value) for key, values in extras for value in values))


def _run_plugin(user: _Entry, cluster: _Entry) -> Json:
    """Run the user's exec plugin and give what it granted."""
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    plugin = user.body["exec"]
    if not isinstance(plugin, dict) or not plugin.get("command"):
        raise user.error("exec must be an object with command and apiVersion")
    told = (ConfigNode("cluster", cluster.body),) if plugin.get("provideClusterInfo") else ()
    what = f"exec plugin {plugin['command']!r}"
    try:
        with _told_if_slow(f"{user.file}: {what}"):
            granted = ExecProvider(ConfigNode("exec", plugin), str(user.file.absolute().parent), *told).run()
    except FileNotFoundError as problem:
        hint = plugin.get("installHint") or "install it, or put it on PATH"
        raise user.error(f"{what} is not there: {hint}") from problem
    except AttributeError as problem:
        # On a terminal the plugin writes there itself, and its errors are not kept (kubernetes 37).
        raise user.error(f"{what} failed; what it said is above") from problem
    except UnicodeDecodeError:
        granted = None
    except (ConfigException, OSError, TypeError, LookupError, ValueError) as problem:
        # The error that is behind it has all that the plugin printed, which may be a token.
        problem.__context__ = None
        raise user.error(f"{what} failed: {problem}; try it by hand, or log in again") from problem
    if not isinstance(granted, dict) or not (granted.get("token") or granted.get("clientCertificateData")):
        raise user.error(f"{what} granted neither a token nor a certificate; log in again")
    if wrong := [key for key in _GRANTED if not isinstance(granted.get(key) or "", str)]:
        raise user.error(f"{what} granted a {wrong[0]} that is no text")
    return granted


@contextmanager
def _told_if_slow(what: str) -> Iterator[None]:
    """Say what is waited for: it may be a login in a browser that nobody has noticed."""
    timer = threading.Timer(SLOW_PLUGIN, logger.warning, ("%s: waiting for it; it may want a login", what))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _as_identity(granted: Mapping[str, Any]) -> Json:
    identity: Json = {"token": granted.get("token")}
    for ours, theirs in (("client-certificate", "clientCertificateData"), ("client-key", "clientKeyData")):
        if pem := granted.get(theirs):
            identity[f"{ours}-data"] = base64.b64encode(pem.encode()).decode()
    return identity


def _moment(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _load_with_library(config: _Kubeconfig, context: str, configuration: Any) -> None:
    from kubernetes.config import ConfigException, load_kube_config

    try:
        load_kube_config(config_file=config.shown, context=context, client_configuration=configuration)
    except ConfigException as problem:
        raise config.broken(str(problem)) from problem


def _service_account() -> Credentials:
    from kubernetes.config import ConfigException, load_incluster_config

    configuration = new_configuration()
    try:
        load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as problem:
        raise Unreachable(
            "find a cluster",
            "KUBECONFIG is not set, ~/.kube/config does not exist, and this is no pod with a service account"
            f" ({problem}); give kubeconfig=, or log in to a cluster first",
        ) from None
    configuration.proxy = proxy_for(configuration.host, os.environ)
    configuration.no_proxy = None
    return Credentials(configuration.host, IN_CLUSTER, configuration)
