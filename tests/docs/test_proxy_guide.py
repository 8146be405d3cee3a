"""The guide of proxies: its numbers are larger than those of the server, and HTTPS works."""

from __future__ import annotations

import re
import socket
import ssl
import urllib.request

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization

from holdfast.cli.main import cli
from holdfast.http.api.runs import WAIT_MAX_SECONDS
from holdfast.http.operation import all_operations
from holdfast.http.protocol import HEAD_BYTES
from holdfast.http.serving import IDLE_SECONDS
from holdfast.http.streams import COMMENT_SECONDS
from holdfast.http.streams import HEADERS as STREAM_HEADERS
from servers.plugin import need
from tests.docs import pages, shell
from tests.http.certificates import certificate

PAGE = pages.ROOT / "docs" / "guide" / "proxy.md"
TEXT = PAGE.read_text("utf-8")


@pytest.mark.slow
def test_the_commands_print_what_the_page_says(tmp_path):
    need("curl", "openssl")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert shell.wrong_outputs(PAGE, tmp_path, port, written="8443") == []


@pytest.mark.slow
@pytest.mark.spec("HTTP-1")
def test_a_server_with_a_certificate_serves_https(tmp_path):
    _write_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "chain.pem"))
    with shell.serving(tmp_path, "--tls-cert", "chain.pem", "--tls-key", "key.pem") as port:
        with urllib.request.urlopen(f"https://localhost:{port}/readyz", context=trusting) as answer:
            assert answer.read() == b'{"status":"ok"}'
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(f"https://localhost:{port}/readyz")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tls-cert", "none.pem", "--tls-key", "key.pem"], "--tls-cert 'none.pem' cannot be read: No such"),
        (["--tls-cert", "key.pem", "--tls-key", "key.pem"], "are no PEM files of a certificate and its key"),
        (["--tls-cert", "chain.pem", "--tls-key", "locked.pem"], "without a password"),
        (["--tls-cert", "chain.pem"], "give --tls-cert and --tls-key together"),
        (["--proxy", "nginx"], "--proxy 'nginx' is neither an address nor a network"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_wrong_options_are_one_line(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _write_certificate(tmp_path)
    done = CliRunner().invoke(cli, ["serve", "--port", "0", *options])
    assert done.exit_code == 2
    assert words in done.output.splitlines()[-1]


def _write_certificate(folder):
    key, _ = certificate(folder)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (folder / "locked.pem").write_bytes(locked)


def test_proxies_let_the_largest_request_and_the_longest_poll_through():
    largest = max(one.body_bytes for one in all_operations().values())
    sizes = [
        int(size)
        for size in re.findall(r"client_max_body_size (\d+)m|max_size (\d+)MB", TEXT)
        for size in size
        if size
    ]
    assert len(sizes) == 2
    assert min(sizes) * 1_000_000 > largest
    (seconds,) = re.findall(r"proxy_read_timeout (\d+)s", TEXT)
    assert int(seconds) > WAIT_MAX_SECONDS > COMMENT_SECONDS


def test_the_numbers_of_the_page_are_those_of_the_program():
    assert f"more than {WAIT_MAX_SECONDS:g} s (long polls)" in TEXT
    assert f"more than {COMMENT_SECONDS:g} s |" in TEXT
    assert f"a comment every {COMMENT_SECONDS:g} s" in TEXT
    assert f"together at most {HEAD_BYTES // 1024} KiB |" in TEXT
    assert f"keep them less than {IDLE_SECONDS} s" in TEXT
    assert STREAM_HEADERS["x-accel-buffering"] == "no"
    assert "`X-Accel-Buffering: no`" in TEXT
