from __future__ import annotations

import pytest

from nemo_run._kube.proxies import proxy_for

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxy"),
    [
        ("https://kube.example:6443", "", PROXY),
        ("https://kube.example:6443", "kube.example", None),
        ("https://kube.example:6443", "KUBE.EXAMPLE", None),
        ("https://kube.example:6443", "example", None),
        ("https://kube.example:6443", ".example", None),
        ("https://kube.example:6443", "*.example", None),
        ("https://kube.example:6443", "*", None),
        ("https://kube.example:6443", "be.example", PROXY),
        ("https://kube.example:6443", "other, kube.example:6443", None),
        ("https://kube.example:6443", "kube.example:443", PROXY),
        ("https://kube.example", "kube.example:443", None),
        ("https://10.96.0.1", "10.0.0.0/8", None),
        ("https://10.96.0.1", "10.96.0.1", None),
        ("https://11.96.0.1", "10.0.0.0/8,,", PROXY),
        ("https://[fd00::1]:6443", "fd00::/8", None),
        ("https://127.0.0.1:6443", "", None),
        ("https://[::1]:6443", "", None),
        ("https://localhost:6443", "", None),
        ("https://a.localhost", "", None),
        ("http://kube.example", "", None),
    ],
)
def test_which_proxy(server, no_proxy, proxy):
    assert proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == proxy


@pytest.mark.parametrize(
    ("env", "proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://lower:1", "HTTPS_PROXY": "http://upper:1"}, "http://lower:1"),
        ({"ALL_PROXY": "socks5h://all:1"}, "socks5h://all:1"),
        ({"HTTPS_PROXY": "plain:1"}, "http://plain:1"),
        ({"HTTP_PROXY": "http://other:1"}, None),
    ],
    ids=["none", "lower case first", "for all schemes", "without a scheme", "for another scheme"],
)
def test_which_variable(env, proxy):
    assert proxy_for("https://kube.example", env) == proxy
