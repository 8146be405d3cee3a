"""Errors of the client: wrong URLs, wrong keys, servers that are something else, and refusals as classes."""

from __future__ import annotations

import asyncio
import pickle
import socket
import ssl
import subprocess

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Mount, Route

import holdfast as hf
from holdfast import errors
from holdfast.client.refusals import Asked, Problem, error_of
from holdfast.http.problems import CAUSES, Code, refusal_of
from holdfast.http.serving import Server
from servers.plugin import need
from tests.client.kit import Serving

KEY = f"hf_{'a' * 12}_{'b' * 32}"


@pytest.mark.spec("HTTP-8")
@pytest.mark.parametrize(
    "url",
    [
        "", "localhost", "ftp://host", "sqlite:///a.db", "http://", "https:///path", "http://host:port",
        "http://host?a=b",
        "http://host#a", "http://a b", "http://ho\nst", 7, None, "http://[::1",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(hf.UsageError, match=r"is not the URL of a server|has a part that is no address"):
        hf.Client(url)


def test_keys_are_not_in_urls_and_not_in_messages():
    with pytest.raises(hf.UsageError, match="give the API key as key=") as error:
        hf.Client("https://me:s3cr3t@host")
    assert "s3cr3t" not in str(error.value)
    for url in ("https://me:s3cr3t@host:port", "https://host?key=s3cr3t", "https://host:port#s3cr3t"):
        with pytest.raises(hf.UsageError) as error:
            hf.Client(url)
        assert "s3cr3t" not in str(error.value)
    for bad in ("s3cr3t", "Bearer hf_", f"{KEY}\r\nx: y", "hf_é", 7):
        with pytest.raises(hf.UsageError, match="not one of Holdfast") as error:
            hf.Client("https://host", key=bad)
        assert "s3cr3t" not in str(error.value)
    client = hf.Client("https://host/flows/", key=f" {KEY}\n")
    assert repr(client) == "<client of https://host/flows>"
    assert KEY not in repr(client.sync) + str(vars(client))
    with pytest.raises(hf.UsageError, match="timeout"):
        hf.Client("https://host", timeout=-1)


@pytest.mark.spec("HTTP-8")
async def test_a_server_that_is_not_there(unused_port):
    async with hf.Client(f"http://127.0.0.1:{unused_port}", timeout=0.5) as client:
        with pytest.raises(hf.Unavailable, match="cannot be reached: Connection refused"):
            await client.list()
        with pytest.raises(hf.Unavailable):
            await client.open()
    async with hf.Client("http://no-such-host.invalid", timeout=0.5) as client:
        with pytest.raises(hf.Unavailable, match="cannot be reached"):
            await client.list()


@pytest.fixture
def unused_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.spec("HTTP-8")
async def test_something_else_than_the_api():
    async def text(_request):
        return PlainTextResponse("hello")

    async def away(_request):
        return PlainTextResponse("bad gateway", 502)

    async def moved(_request):
        return RedirectResponse("http://127.0.0.1:1/")

    routes = [
        Mount("/other", Starlette(routes=[Route("/{rest:path}", text)])),
        Mount("/away", Starlette(routes=[Route("/{rest:path}", away)])),
        Mount("/moved", Starlette(routes=[Route("/{rest:path}", moved)])),
    ]
    with Serving(wrap=lambda api: Starlette(routes=[*routes, Mount("/api", api)])) as server:
        for path, class_, words in (
            ("/other", hf.StoreError, "not as the HTTP API"),
            ("", hf.StoreError, "this is not the HTTP API"),
            ("/moved", hf.StoreError, "redirects to another address"),
            ("/away", hf.Unavailable, "answers 502"),
            ("/api/nothing", hf.StoreError, "does not know this operation"),
        ):
            async with hf.Client(server.url + path, timeout=2) as client:
                with pytest.raises(class_, match=words):
                    await client.now()
        async with hf.Client(f"{server.url}/api/", timeout=5) as client:
            run = await client.start("shop.quick.v1", 1)
            assert (await client.known(run.id)).params == 1


@pytest.mark.spec("TEN-3")
async def test_a_missing_wrong_or_revoked_key():
    with Serving(open=False) as server:
        key = server.key(name="one")
        async with server.client() as client:
            with pytest.raises(hf.NotAllowed, match=r"wants an API key.*HOLDFAST_KEY"):
                await client.list()
        async with server.client(key=KEY) as client:
            with pytest.raises(hf.NotAllowed, match="unknown, expired or revoked") as error:
                await client.list()
            assert "bbb" not in str(error.value)
        async with server.client(key=key) as client:
            assert await client.list() == []
            with pytest.raises(hf.NotAllowed, match="operator"):
                await client.limits()


@pytest.mark.spec("HTTP-8")
def test_every_error_of_the_library_comes_back_as_its_class():
    run = "0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10"
    for error in (
        errors.UnknownRun(run),
        errors.UnknownSchedule("n"),
        errors.UnknownMessage("m"),
        errors.UnknownApiKey("k"),
        errors.UnknownWorkflow("no such"),
        errors.UnknownStep("no such"),
        errors.UsageError("odd"),
        errors.TooLarge("large"),
        errors.IllegalMove(run, "pause", hf.Status.FAILED),
        errors.KeyReused("k", run),
        errors.TooManyRuns("k", 5),
        errors.TooManySubscribers(5),
        errors.Conflict("no"),
        errors.CannotOpen("no key"),
        errors.Unavailable("away"),
    ):
        refusal = refusal_of(error).problem("request", "/docs")
        problem = Problem(
            code=refusal.code, detail=refusal.detail, run=refusal.run, run_status=refusal.run_status
        )
        asked = Asked(
            operation="pause",
            name={"UnknownRun": run, "UnknownSchedule": "n", "UnknownMessage": "m"}.get(
                type(error).__name__, "k"
            ),
            key="k",
        )
        back = error_of(problem, asked)
        assert type(back) is type(error)
        if isinstance(error, errors.UsageError | errors.IllegalMove | errors.KeyReused):
            assert str(back) == str(error)
        again = pickle.loads(pickle.dumps(back))
        assert (type(again), str(again)) == (type(back), str(back))
        for name in ("run_id", "status", "move", "key", "name", "message_id"):
            assert getattr(back, name, None) == getattr(error, name, None)


def test_every_code_is_a_class_of_ours_and_new_codes_are_too():
    for code in [*Code, "from-the-future"]:
        error = error_of(Problem(code=code, detail="said", request="r7"), Asked(operation="list"))
        assert isinstance(error, hf.HoldfastError)
        if code not in {Code.INTERNAL, Code.NOT_FOUND, Code.METHOD_NOT_ALLOWED, "from-the-future"}:
            assert type(error) is not hf.StoreError, code
    assert "r7" in str(error)
    assert set(CAUSES) == set(Code)


@pytest.mark.spec("HTTP-8")
async def test_a_certificate_that_nobody_has_signed_is_refused(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    need("openssl")
    subprocess.run(  # noqa: ASYNC221 - the test needs it first
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-keyout", key,
         "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        capture_output=True, check=True,
    )  # fmt: skip
    with Serving() as server:
        secure = server.run(secured(server, str(cert), str(key)))
        try:
            async with hf.Client(secure.url, timeout=2) as client:
                with pytest.raises(hf.Unavailable, match="its TLS certificate is not trusted"):
                    await client.now()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SSL_CERT_FILE", str(cert))
                async with hf.Client(secure.url, timeout=5) as client:
                    assert await client.now()
            assert ssl.OPENSSL_VERSION
        finally:
            server.run(stopped(secure))


async def secured(server, cert, key):
    one = Server(server.api, "127.0.0.1", 0, tls=(cert, key))
    await one.begin()
    return one


async def stopped(one):
    one._server.should_exit = True
    await asyncio.wait_for(one._task, 10)
