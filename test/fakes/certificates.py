"""A certificate authority for one test run, made by the machine's openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_EXTENSIONS = """
subjectAltName=DNS:kube.example,IP:127.0.0.1
authorityKeyIdentifier=keyid
subjectKeyIdentifier=hash
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
basicConstraints=critical,CA:FALSE
"""


@dataclass(frozen=True)
class Certificate:
    """A server's (and client's) certificate and key, and the authority that signed it."""

    ca: Path
    cert: Path
    key: Path


def make_certificate(directory: Path, *, plain: bool = False) -> Certificate:
    """Give a certificate for 127.0.0.1 and kube.example; a *plain* one leaves out what RFC 5280 wants."""
    ca, ca_key, key, request, cert = (directory / name for name in ("ca.crt", "ca.key", "key", "csr", "crt"))
    extensions = directory / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1" if plain else _EXTENSIONS)
    fresh = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    authority = ["-addext", "keyUsage=critical,keyCertSign"]
    _openssl(*fresh, "-x509", "-days", "2", "-subj", "/CN=test ca", *authority, "-keyout", ca_key, "-out", ca)
    _openssl(*fresh, "-subj", "/CN=someone", "-keyout", key, "-out", request)
    signed = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", extensions]
    _openssl("x509", "-req", "-in", request, *signed, "-out", cert)
    return Certificate(ca, cert, key)


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
