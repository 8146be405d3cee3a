"""The ways on which an API key travels: proxies of the environment, and plain http://."""

from __future__ import annotations

import asyncio
import logging

import pytest

import holdfast as hf
from holdfast.client import addresses
from tests.client.kit import Serving
from tests.client.test_errors import KEY

PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture
def environment(monkeypatch):
    """An environment without proxies."""
    for name in (*PROXIES, "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


async def listening():
    """A server that keeps what it is sent, and its port."""
    heard = []

    async def talk(reader, writer):
        try:
            heard.append(await reader.read(4096))
        finally:  # also when the test ends before the client has sent anything
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1], heard


@pytest.mark.spec("HTTP-8")
async def test_a_key_for_this_machine_goes_through_no_proxy(environment):
    proxy, port, heard = await listening()
    for name in PROXIES:
        environment.setenv(name, f"http://127.0.0.1:{port}")
    with Serving(open=False) as server:
        key = server.key()
        for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
            async with hf.Client(url, key=key, timeout=3) as client:
                assert await client.now()
    assert heard == []
    async with hf.Client("http://flows.invalid", timeout=0.5) as client:
        with pytest.raises(hf.Unavailable):
            await client.now()
    assert heard[0].startswith(b"GET http://flows.invalid/whoami")  # other servers: as the environment says
    proxy.close()


@pytest.mark.spec("HTTP-8")
@pytest.mark.parametrize("proxy", ["socks5://me:s3cr3t@host", "ftp://me:s3cr3t@host", "http://me:s3cr3t@h:x"])
async def test_a_proxy_that_cannot_be_used_is_one_line_without_its_password(environment, proxy):
    environment.setenv("ALL_PROXY", proxy)
    with pytest.raises(hf.UsageError, match="the proxy in the environment") as error:
        await hf.Client("https://flows.invalid", timeout=0.5).now()
    assert "s3cr3t" not in str(error.value)


@pytest.mark.spec("HTTP-8")
async def test_certificates_that_are_not_there(environment, tmp_path):
    environment.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(hf.UsageError, match="SSL_CERT_FILE"):
        await hf.Client("https://flows.invalid", timeout=0.5).now()


@pytest.mark.spec("HTTP-8")
async def test_https_at_a_server_without_tls_says_so(environment):
    """The numbers of TLS errors are no errno: they would read "Operation not permitted"."""
    server, port, _ = await listening()
    async with hf.Client(f"https://127.0.0.1:{port}", timeout=2) as client:
        with pytest.raises(hf.Unavailable, match="no connection with TLS: write http://"):
            await client.now()
    server.close()


@pytest.mark.spec("HTTP-8")
def test_a_key_over_plain_http_to_another_machine_is_warned_of_once(monkeypatch, caplog):
    monkeypatch.setattr(addresses, "_warned", set())
    caplog.set_level(logging.WARNING, "holdfast.client")
    for url in (
        "https://host",
        "http://localhost:1",
        "http://127.0.0.2",
        "http://[::1]:1",
        "http://a.localhost",
    ):
        hf.Client(url, key=KEY)
    hf.Client("http://host")
    hf.Client("http://host", key=KEY, insecure=True)
    assert caplog.messages == []
    for _ in range(2):
        hf.Client("http://host", key=KEY)
    (said,) = caplog.messages
    assert "http://host without encryption" in said
    assert KEY not in said
    hf.Client("http://127.0.0.1.example", key=KEY)
    assert len(caplog.messages) == 2
