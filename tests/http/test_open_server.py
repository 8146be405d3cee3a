"""Servers without keys: loopback names only, no pages of other sites; what the unauthenticated learn."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import holdfast
from holdfast.cli.main import cli
from holdfast.errors import Unavailable, UsageError
from holdfast.http import asgi, extra_installed
from holdfast.http.access import host_name
from holdfast.http.operation import all_operations
from holdfast.http.serving import is_loopback
from tests.http.kit import Kit, shop
from tests.http.real import ask, served
from tests.http.rows import ROWS

RUN = {"type": "shop.quick.v1"}


@pytest.mark.spec("TEN-3")
def test_a_mounted_api_without_keys_refuses_everything():
    outer = Starlette(routes=[Mount("/api", app=asgi(shop()))])
    with TestClient(outer, base_url="http://localhost") as client:
        for name, operation in all_operations().items():
            if not operation.scopes:
                continue
            method, path, options = ROWS[name].sent(operation, _Things())
            response = client.request(method, f"/api{path}", **options)
            assert response.status_code == 401, name
            assert response.json()["type"] == "/api/docs/problems#unauthenticated"
        assert client.get("/api/healthz").status_code == 200
        assert client.get("/api/openapi.json").json()["servers"] == [{"url": "/api"}]


class _Things:
    message, key, schedule, cursor = "none", "0" * 12, "none", "A"

    def __getitem__(self, name):
        return "01a1e9cd-e750-7323-987a-349e40ae595e"


@pytest.mark.spec("TEN-3")
def test_a_mounted_api_that_is_open_lets_everyone_in_but_no_other_site():
    with Kit(open=True, host="shop.example") as kit:
        assert kit.ask("POST", "/runs", json=RUN).status_code == 201
        assert kit.ask("GET", "/registry").status_code == 200
        refused = {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}
        for headers in refused:
            response = kit.ask("POST", "/runs", json=RUN, headers=headers)
            assert (response.status_code, response.json()["code"]) == (403, "origin-refused")
        assert kit.ask("GET", "/runs", "hf_bad").status_code == 401


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("host", [
    "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:80:80",
    "localhost@evil.example", "", "[::1", "::1", "0.0.0.0", "169.254.169.254", "127.1", "2130706433",
    "localhost.", "LOCALHOST.EVIL", "a b",
])  # fmt: skip
def test_a_server_without_keys_answers_to_loopback_names_only(host, open_kit):
    for path, method in (("/runs", "GET"), ("/runs", "POST"), ("/keys", "GET")):
        response = open_kit.ask(method, path, headers={"host": host}, json=RUN if method == "POST" else None)
        assert (response.status_code, response.json()["code"]) == (403, "host-refused")


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "x-forwarded-proto"])
def test_a_server_without_keys_answers_no_proxy(name, open_kit):
    """A proxy on the same machine would let everyone in, whatever Host it sends."""
    response = open_kit.ask("GET", "/runs", headers={"host": "localhost", name: "203.0.113.9"})
    assert (response.status_code, response.json()["code"]) == (403, "host-refused")
    assert "came through a proxy" in response.json()["detail"]


@pytest.fixture(scope="module")
def open_kit():
    with Kit(open=True, check_host=True) as kit:
        yield kit


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080"]
)
def test_loopback_names(host, open_kit):
    assert open_kit.ask("GET", "/runs", headers={"host": host}).status_code == 200


def test_the_name_of_a_host():
    assert host_name("[::1]:80") == "[::1]"
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.com")
    assert is_loopback("::1")
    assert is_loopback("127.0.0.2")


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("headers", [
    {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://["}, {"origin": ""},
    {"origin": "http://localhost:81"}, {"origin": "http://localhost.evil.example"}, {"origin": "localhost"},
    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "odd"},
])  # fmt: skip
def test_a_page_of_another_site_is_refused(headers, open_kit):
    for method, path in (("GET", "/runs"), ("POST", "/runs"), ("DELETE", "/schedules/x")):
        response = open_kit.ask(method, path, headers=headers, json=RUN if method == "POST" else None)
        assert (response.status_code, response.json()["code"]) == (403, "origin-refused"), headers


@pytest.mark.spec("TEN-3")
def test_the_own_page_and_programs_are_let_in(open_kit):
    for headers in (
        {},
        {"origin": "http://localhost"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin"},
    ):
        assert open_kit.ask("GET", "/runs", headers=headers).status_code == 200, headers
    response = open_kit.ask(
        "POST", "/runs", content=b'{"type": "shop.quick.v1"}', headers={"content-type": "text/plain"}
    )
    assert response.status_code == 415
    assert (
        "access-control-allow-origin"
        not in open_kit.ask("OPTIONS", "/runs", headers={"origin": "http://a"}).headers
    )


@pytest.mark.spec("TEN-3")
def test_the_first_key_closes_an_open_server():
    with Kit(open=True, check_host=True, until_keys=True) as kit:
        assert kit.ask("GET", "/runs").status_code == 200
        key = kit.key()
        kit.run(kit.api.upkeep)
        assert kit.ask("GET", "/runs").status_code == 401
        assert kit.ask("GET", "/runs", key, headers={"host": "shop.example"}).status_code == 200


@pytest.mark.spec("TEN-3")
def test_a_key_from_before_the_first_request_closes_an_open_server():
    with Kit(open=True, until_keys=True) as kit:
        kit.key()
        assert kit.ask("GET", "/runs").status_code == 401


@pytest.mark.spec("TEN-3")
@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com", "::"])
def test_serve_without_keys_listens_on_loopback_only(host, tmp_path):
    store = f"sqlite:///{tmp_path}/holdfast.db"
    done = CliRunner().invoke(cli, ["serve", "--host", host, "--port", "0", "--store", store])
    assert done.exit_code in {1, 2}
    assert "loopback only" in done.output
    assert "Traceback" not in done.output


@pytest.mark.spec("TEN-3")
def test_the_unauthenticated_learn_no_version_and_no_address(monkeypatch, tmp_path):
    with Kit(shop(f"sqlite:///{tmp_path}/secret-place.db")) as kit:
        for path in ("/healthz", "/readyz", "/openapi.json", "/docs", "/docs/problems", "/runs", "/nothing"):
            response = kit.ask("GET", path)
            said = f"{response.headers} {response.text}"
            assert "server" not in response.headers
            for secret in (holdfast.__version__, "secret-place", "sqlite", "uvicorn", "starlette"):
                assert secret not in said, (path, secret)

        async def away(*_):
            raise Unavailable("no route to db-7.internal as user holdfast_admin")

        monkeypatch.setattr(kit.app.store, "now", away)
        monkeypatch.setattr(kit.app.store, "find_key", away)
        assert kit.ask("GET", "/healthz").status_code == 200
        for path, key in (("/readyz", None), ("/runs", f"hf_{'0' * 12}_{'0' * 32}")):
            response = kit.ask("GET", path, key)
            assert (response.status_code, response.json()["code"]) == (503, "store-unavailable")
            assert "db-7" not in response.text
            assert "retry-after" in response.headers


@pytest.mark.spec("TEN-3")
@pytest.mark.slow
def test_forwarded_headers_count_only_from_a_named_proxy():
    for proxies, seen in (((), "127.0.0.1"), (("127.0.0.1",), "192.0.2.7"), (("192.0.2.99",), "127.0.0.1")):
        app, clients = shop(), []

        with served(app, proxies=proxies, open=True) as (port, _):
            from holdfast.http import access

            original = access.check_local

            def noting(request, *, check_host, clients=clients):
                clients.append(request.client.host)

            from holdfast.http import server

            server.check_local = noting
            try:
                ask(port, "GET", "/runs", x_forwarded_for="192.0.2.7", x_forwarded_proto="https")
            finally:
                server.check_local = original
        assert clients == [seen]
        asyncio.set_event_loop(None)


@pytest.mark.spec("TEN-3")
def test_requests_without_a_valid_key_are_told_once_a_minute(monkeypatch, caplog):
    with Kit() as kit:
        for _ in range(3):
            kit.ask("GET", "/runs")
        kit.run(kit.api.upkeep, rarer=True)
        assert "without a valid key" not in caplog.text
        monkeypatch.setattr("holdfast.http.server.TELL_SECONDS", 0.0)
        for _ in range(2):
            kit.run(kit.api.upkeep, rarer=True)
        told = [one for one in caplog.messages if "without a valid key" in one]
        assert told == ["3 requests without a valid key in the last minute"]


@pytest.mark.spec("TEN-3")
def test_a_store_that_is_away_is_not_asked_to_note_that(monkeypatch):
    asked = []

    async def noting(rows):
        asked.append(rows)

    with Kit() as kit:
        key = kit.key()
        monkeypatch.setattr(kit.app.store, "note_audit", noting)
        monkeypatch.setattr("holdfast.http.server.parsing.parsed_query", _away)
        assert kit.ask("GET", "/runs", key).status_code == 503
        assert not asked


def _away(*_):
    raise Unavailable("away")


@pytest.mark.parametrize("library", ["httptools", "jinja2", "starlette", "uvicorn"])
def test_a_missing_library_of_the_extra_is_one_line(library):
    with pytest.raises(UsageError, match=f"needs the extra `http` .*{library}"), extra_installed():
        raise ModuleNotFoundError(name=library)
