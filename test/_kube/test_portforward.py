"""What comes over a port-forward's websocket, sorted; the rest is tested on LocalKube."""

from __future__ import annotations

from nemo_run._kube.portforward import Ports


def test_each_channel_opens_with_the_port():
    ports = Ports()
    assert not ports.ready
    assert ports.feed(b"\x00\x49\x20") == b""
    assert not ports.ready
    assert ports.feed(b"\x01\x49\x20") == b""
    assert ports.ready
    assert ports.feed(b"\x00\x49\x20 data") == b"\x49\x20 data"
    assert ports.trouble == ""


def test_the_first_bytes_may_come_with_the_port():
    assert Ports().feed(b"\x00\x49\x20HTTP/1.1") == b"HTTP/1.1"


def test_trouble_is_text_and_no_data():
    ports = Ports()
    ports.feed(b"\x01\x49\x20")
    assert ports.feed(b"\x01connection refused \xff") == b""
    assert ports.trouble == "connection refused \ufffd"


def test_an_empty_message_says_nothing():
    assert Ports().feed(b"") == b""
