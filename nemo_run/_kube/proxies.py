"""Which proxy leads to a server: one answer for requests and websockets, as Go's clients (kubectl) give it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(server: str, env: Mapping[str, str]) -> str | None:
    """
    Give the proxy that *env* names for *server*, or None to go there directly.

    A loopback address never has one. ``NO_PROXY`` may hold host names (their
    subdomains too), addresses, networks (``10.0.0.0/8``), ``host:port`` and ``*``.
    """
    parts = urlsplit(server)
    host, port = (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)
    proxy = _read(env, f"{parts.scheme}_proxy") or _read(env, "all_proxy")
    if not proxy or _is_loopback(host):
        return None
    if any(_matches(rule, host, port) for rule in _read(env, "no_proxy").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _read(env: Mapping[str, str], name: str) -> str:
    return env.get(name) or env.get(name.upper()) or ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _matches(rule: str, host: str, port: int) -> bool:
    rule = rule.strip().lower()
    if rule in ("", "*"):
        return rule == "*"
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        pass
    name, _, wanted = rule.rpartition(":") if rule.rpartition(":")[2].isdigit() else (rule, "", "")
    if wanted and int(wanted) != port:
        return False
    name = name.strip("[]").removeprefix("*").removeprefix(".")
    return host == name or host.endswith(f".{name}")
