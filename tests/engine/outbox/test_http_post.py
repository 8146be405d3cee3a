"""HTTP posts: allowed addresses, the address that is really used, and untrusted answers."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast import UsageError
from holdfast.engine.outbox import http_post as posting
from holdfast.engine.outbox.addresses import is_public
from holdfast.engine.outbox.http_post import Poster, Unpostable, check_url, shown_url
from holdfast.world import RealWorld
from tests.engine.outbox.receiver import receiving

PUBLIC = (
    "93.184.216.34", "8.8.8.8", "168.63.129.17", "192.0.1.1", "192.88.98.1", "2606:4700:4700::1111",
    "2001:4860:4860::8888", "2001:200::1", "3fff:1000::1", "2a00:1450::5eff:808:808",
)  # fmt: skip
PRIVATE = (
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%lo", "fc00::1",
    "fd12:3456::1", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:808:808::1",
    "2001::1", "2001:0:7f00:1::", "100::1", "fec0::1", "fec0::1%lo", "3fff::1", "3ffe::1", "5f00::1",
    "192.88.99.1", "168.63.129.16", "192.31.196.1", "192.52.193.1", "192.175.48.1", "192.0.0.9", "4000::1",
    "192.0.0.192", "100.100.100.200", "2001:1::1", "2001:2::1", "2001:3::1", "2001:4:112::1", "2001:20::1",
    "2620:4f:8000::1", "2a00:1450::5efe:7f00:1", "2a00:1450::200:5efe:7f00:1", "::ffff:0:127.0.0.1",
)  # fmt: skip


def post(url, body=b"{}", *, allow_private=False, resolver=None, tls=None, headers=None):
    async def posted():
        poster = Poster(RealWorld(), *([] if resolver is None else [resolver]), tls=tls)
        return (await poster.post(url, headers or {}, body, allow_private=allow_private)).status

    return asyncio.run(posted())


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address):
    """Private addresses, this machine, unassigned ones, and those that contain another address."""
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_public(address):
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://example.com/", "neither https:// nor http://"),
        ("file:///etc/passwd", "neither https:// nor http://"),
        ("example.com/in", "neither https:// nor http://"),
        ("https://", "names no host"),
        ("https:///in", "names no host"),
        ("https://example.com:0/", "names a port that there is not"),
        ("https://example.com:99999/", "names a port that there is not"),
        ("https://example.com:443:80/", "names a port that there is not"),
        ("https://example.com:s3cret/", "names a port that there is not"),
        ("https://[::1/s3cret", "cannot be read"),
        ("https://ann:s3cret@example.com/", "user name or a password"),
        ("https://:s3cret@example.com/", "user name or a password"),
        ("https://example.com/a b", "characters that no URL has"),
        ("https://example.com/a\r\nHost: b", "characters that no URL has"),
        ("https://exämple.com/", "characters that no URL has"),
        ("https://example.com/#s3cret", "fragment"),
        ("http://example.com/", "anyone on the way can read"),
        ("https://127.0.0.1/", "is not public"),
        ("https://[::ffff:10.0.0.1]/", "is not public"),
        (b"https://example.com/", "neither https:// nor http://"),
        (None, "neither https:// nor http://"),
    ],
)
def test_an_invalid_url_is_refused_at_once_and_not_repeated(url, said):
    """The error does not contain the URL, which may hold a password."""
    with pytest.raises(UsageError, match=said) as error:
        check_url(url, allow_private=False)
    assert "s3cret" not in str(error.value)


def test_a_url_in_logs_tells_neither_its_query_nor_most_of_its_path():
    assert shown_url("https://example.com:444/in?token=s3cret") == "https://example.com:444/in…"
    assert shown_url("https://example.com/in") == "https://example.com/in"
    assert shown_url("https://example.com/hook") == "https://example.com/hook"
    assert shown_url("https://example.com/hooks/T0/s3cret") == "https://example.com/hook…"
    assert shown_url("https://example.com/hooks/T0/s3cret?a=1") == "https://example.com/hook…"


@pytest.mark.spec("OUT-2")
def test_a_post_reaches_the_receiver_as_it_was_written():
    with receiving() as server:
        said = {"Content-Type": "application/json", "X-One": "1"}
        url = f"{server.url}?a=1"
        assert post(url, b'{"n":1}', allow_private=True, headers=said) == 200
        (got,) = server.got
    assert (got.path, got.body) == ("/in?a=1", b'{"n":1}')
    assert (got.headers["Host"], got.headers["X-One"]) == (f"127.0.0.1:{server.port}", "1")


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_an_answer_and_is_not_followed(status):
    with receiving() as server, receiving() as inside:
        server.answer = (status, {"Location": inside.url}, b"")
        assert post(server.url, allow_private=True) == status
        assert inside.got == []


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize(
    "found", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"], ["10.0.0.7"], ["::1"]]
)
def test_a_name_with_one_address_that_is_not_public_is_not_connected_to(found):
    """All addresses are checked, not only the first."""
    with receiving() as server, pytest.raises(Unpostable, match="is not public") as refused:
        post(f"https://shop.example:{server.port}/", resolver=lambda *_: found)
    assert refused.value.kind == "refused"
    assert server.got == []


@pytest.mark.spec("OUT-2")
def test_a_name_is_resolved_once_and_the_connection_goes_to_the_address_that_was_checked(monkeypatch):
    """A name server cannot give a public address first and a private one later."""
    asked, connected = [], []

    def rebinding(host, port):
        asked.append(host)
        return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

    async def open_connection(host, port, **options):
        connected.append((host, port, options.get("server_hostname")))
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(posting.asyncio, "open_connection", open_connection)
    with pytest.raises(Unpostable, match="Connection refused"):
        post("https://shop.example/in", resolver=rebinding)
    assert asked == ["shop.example"]
    assert connected == [("93.184.216.34", 443, "shop.example")]


def test_the_next_address_is_tried_when_one_does_not_answer():
    with receiving() as server:
        url = f"http://shop.example:{server.port}/"
        assert post(url, resolver=lambda *_: ["127.0.0.2", "127.0.0.1"], allow_private=True) == 200


@contextmanager
def swallowing(address):
    """Open a port that neither accepts nor refuses connections: its queue is full."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server((address, 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield full.getsockname()[1]


def test_the_next_address_is_tried_when_one_swallows_everything(monkeypatch):
    """An address behind a broken route gets a few seconds, not the whole time."""
    monkeypatch.setattr(posting, "CONNECT_SECONDS", 0.1)
    with swallowing("127.0.0.2") as port, receiving(port=port) as server:
        url = f"http://shop.example:{server.port}/"
        assert post(url, resolver=lambda *_: ["127.0.0.2", "127.0.0.1"], allow_private=True) == 200


@pytest.mark.parametrize("count", [1, 2, 4, 9, 100])
def test_however_many_addresses_a_name_has_each_gets_its_time(count):
    """All addresses together get less than the limit; the last one gets the rest."""
    limits = [posting.connect_seconds(count, number) for number in range(count)]
    assert limits[-1] is None
    assert all(0 < one <= posting.CONNECT_SECONDS for one in limits[:-1])
    assert sum(limits[:-1]) <= posting.POST_SECONDS - posting.CONNECT_SECONDS


@pytest.mark.spec("OUT-2")
def test_no_proxy_of_the_environment_is_used(monkeypatch):
    with receiving() as server, receiving() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert post(server.url, allow_private=True) == 200
        assert (len(server.got), proxy.got) == (1, [])


def certified(folder, name):
    """Write a certificate for a name, and its key, to a file."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key())
        .serial_number(1).not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = folder / f"{name}.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, *form) + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.spec("OUT-2")
@pytest.mark.parametrize(
    ("host", "trusted"), [("shop.example", True), ("other.example", True), ("shop.example", False)]
)
def test_the_certificate_is_that_of_the_name_though_the_connection_goes_to_an_address(
    tmp_path, host, trusted
):
    """SNI and verification use the name."""
    pem = certified(tmp_path, "shop.example")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem)
    heard = []
    server_side.sni_callback = lambda _, name, __: heard.append(name)
    ours = ssl.create_default_context(cafile=str(pem) if trusted else None)
    with receiving(server_side) as server:
        url = f"https://{host}:{server.port}/in"
        resolver = lambda *_: ["127.0.0.1"]  # noqa: E731
        if host == "shop.example" and trusted:
            assert post(url, resolver=resolver, allow_private=True, tls=ours) == 200
        else:
            with pytest.raises(Unpostable, match="certificate is not valid") as refused:
                post(url, resolver=resolver, allow_private=True, tls=ours)
            assert refused.value.kind == "tls"
            assert server.got == []
    assert heard == [host]


def answering(*lines):
    """Serve one connection with exactly this answer."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with closing(listener):
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # a client that has read enough closes the connection
                connection.recv(65536)
                for line in lines:
                    connection.sendall(line)

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], 204),
        ([b"HTTP/1.0 200\r\n\r\n"], 200),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", b"HTTP/1.1 202 OK\r\n\r\n"], 202),
        ([b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1_000_000], 200),
        ([b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 20_000], 200),
        ([b"HTTP/1.1 200 OK\r\n", b"a: " + b"b" * 20_000], 200),
        ([b"HTTP/1.1 503\r\nRetry-After: soon\r\nRetry-After: \xff\r\n\r\n"], 503),
    ],
)
def test_only_the_status_counts(lines, status):
    assert post(answering(*lines), allow_private=True) == status


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "without an answer"),
        ([b"SSH-2.0-OpenSSH\r\n"], "does not speak HTTP"),
        ([b"HTTP/1.1 abc\r\n"], "does not speak HTTP"),
        ([b"HTTP/1.1 " + b"9" * 20_000], "ValueError"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n"] * 9, "gives none"),
        ([b"HTTP/1.1 103 Early Hints\r\n", b"a: b\r\n" * 20_000], "no end of headers"),
        ([b"HTTP/1.1 103 Early Hints\r\n", b"a: " + b"b" * 6_000 + b"\r\n"] * 4, "no end of headers"),
        ([b"HTTP/1.1 103 Early Hints\r\n" + b"a: b\r\n" * 30 + b"\r\n"] * 4, "no end of headers"),
    ],
)
def test_an_invalid_answer_is_a_failure_and_not_repeated(lines, said):
    with pytest.raises(Unpostable, match=said) as error:
        post(answering(*lines), allow_private=True)
    assert "OpenSSH" not in str(error.value)


def test_nothing_is_left_of_a_post_to_a_receiver_that_never_reads(monkeypatch):
    """Neither the connection nor the unsent rest of the body is kept."""
    monkeypatch.setattr(posting, "POST_SECONDS", 0.1)
    body = b"x" * 16_000_000

    async def story():
        loop, came = asyncio.get_running_loop(), 0
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            listener.setblocking(False)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            with pytest.raises(Unpostable, match="no answer within"):
                await Poster(RealWorld()).post(url, {}, body, allow_private=True)
            connection, _ = await loop.sock_accept(listener)
            with closing(connection), suppress(ConnectionError):
                async with asyncio.timeout(5):
                    while some := await loop.sock_recv(connection, 1 << 20):
                        came += len(some)
        return came

    assert asyncio.run(story()) < len(body)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("Retry-After: 120", 120.0), ("retry-after:7 ", 7.0), ("Retry-After: -1", None), ("A: 1", None)],
)
def test_an_answer_may_say_when_to_retry(header, seconds):
    async def posted():
        return await Poster(RealWorld()).post(url, {}, b"", allow_private=True)

    url = answering(f"HTTP/1.1 429 Slow down\r\nA: b\r\n{header}\r\n\r\n".encode())
    assert asyncio.run(posted()) == (429, seconds)


def test_a_receiver_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(posting, "POST_SECONDS", 0.1)
    listener = socket.create_server(("127.0.0.1", 0))
    with closing(listener), pytest.raises(Unpostable, match=r"no answer within 0.1 s") as late:
        post(f"http://127.0.0.1:{listener.getsockname()[1]}/", allow_private=True)
    assert late.value.kind == "timeout"


def test_a_name_that_nobody_knows_is_a_failure():
    def unknown(host, port):
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(Unpostable, match="Name or service not known"):
        post("https://shop.example/", resolver=unknown)
    with pytest.raises(Unpostable, match="no address"):
        post("https://shop.example/", resolver=lambda *_: [])
