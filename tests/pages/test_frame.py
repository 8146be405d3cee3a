"""The frame of all pages: headers, files, links below a prefix, problems, preferences, parts."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from holdfast.errors import UsageError
from holdfast.http import asgi
from holdfast.http.pages.page import all_pages, menu_pages
from holdfast.records import Scope
from tests.http.kit import Kit, shop
from tests.pages.kit import Visit, mounted

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def test_a_browser_that_asks_for_the_root_is_led_to_the_pages(visit):
    response = visit.client.get("/", headers={"accept": "text/html,*/*"})
    assert response.url.path == "/ui/"
    assert visit.client.get("/").status_code == 404  # a program is told that there is nothing


def test_every_answer_has_the_headers_of_a_page(visit):
    for path in ("/", "/runs", "/nothing", "/sign-in", "/static/holdfast.js"):
        headers = visit.get(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert "x-request-id" in headers
    assert visit.get("/").headers["cache-control"] == "no-store"


def test_no_page_has_inline_script_or_style(furnished_visit):
    for one in menu_pages():
        text = furnished_visit.text(one.path)
        assert "<style" not in text
        assert " style=" not in text
        assert "<script>" not in text
        assert " onclick=" not in text


def test_files_are_kept_by_browsers_under_their_version(visit):
    text = visit.text("/")
    address = text.partition('rel="stylesheet" href="/ui')[2].partition('"')[0]
    assert "immutable" in visit.get(address).headers["cache-control"]
    assert visit.get("/static/holdfast.css").headers["cache-control"] == "no-cache"
    for odd in ("/static/../frame.py", "/static/%2e%2e/frame.py", "/static/layout.html"):
        assert visit.get(odd).status_code == 404


@pytest.mark.spec("TEN-3")
def test_large_forms_count_as_large_bodies_of_their_tenant(visit):
    visit.get("/")
    bodies, form = visit.kit.api.large_bodies, {"body_topic": "t", "body_payload": f'"{"x" * 100_000}"'}
    csrf = visit.csrf
    with bodies.one("default", bodies.per_tenant):
        assert visit.do("emit", csrf=csrf, **form).status_code == 503
        assert visit.do("emit", csrf=csrf, body_topic="small").status_code == 200
    assert visit.do("emit", csrf=csrf, **form).status_code == 200
    assert bodies.bytes == 0


def test_a_page_that_is_not_there_says_so(visit):
    assert visit.get("/nothing").status_code == 404
    assert visit.said == "there is no such page"
    assert visit.get("/runs?after=x").status_code == 200
    assert "after" in visit.said


def test_a_refused_page_has_the_headers_of_its_refusal(keyed_visit, visit):
    response = visit.client.request("DELETE", "/ui/runs")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, POST")
    keyed_visit.sign_in_with(keyed_visit.kit.key(Scope.RUNS_READ, rate=1.0))
    while (response := keyed_visit.get("/runs")).status_code == 200:
        pass
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")


def test_links_are_below_the_prefix_of_a_mount():
    app = shop()
    with TestClient(mounted(asgi(app, open=True), "/tools/holdfast"), base_url="http://localhost") as client:
        kit = type("Mounted", (), {"client": client})
        visit = Visit(kit, "/tools/holdfast")
        text = visit.text("/")
        assert 'href="/tools/holdfast/ui/runs"' in text
        assert 'href="/ui' not in text
        assert 'action="/ui' not in text
        response = visit.client.get("/tools/holdfast/", headers={"accept": "text/html"})
        assert response.url.path == "/tools/holdfast/ui/"


def test_the_environment_is_above_each_page():
    with Kit(open=True, environment="production", colour="red") as kit:
        text = Visit(kit).text("/")
        assert '<span class="environment">production</span>' in text
        assert "env-red" in text
    with pytest.raises(UsageError, match="colour"):
        asgi(shop(), colour="pink")


def test_without_pages_only_the_api_is_served():
    with Kit(open=True, pages=False) as kit:
        assert kit.client.get("/ui/").status_code == 404
        assert kit.client.get("/healthz").status_code == 200


def test_preferences_work_without_script(visit):
    visit.get("/")
    data = {"csrf": visit.csrf, "theme": "dark", "keys": "off", "back": "/ui/runs"}
    visit.last = visit.client.post("/ui/preferences", data=data)
    assert visit.last.url.path == "/ui/runs"
    assert 'data-theme="dark"' in visit.last.text
    assert 'data-keys="off"' in visit.last.text
    visit.client.post("/ui/preferences", data={**data, "csrf": visit.csrf, "theme": '"><script>'})
    assert 'data-theme="dark"' in visit.text("/")


def test_an_action_asks_first_if_its_form_says_so(visit):
    run = visit.kit.run(visit.kit.app.start, "shop.quick.v1", delay=60)
    visit.get("/")
    visit.do("delete", path_run=run.id, confirm="Delete it?", back="/ui/runs")
    assert "Delete it?" in visit.last.text
    assert visit.kit.run(visit.kit.app.get, run.id) is not None
    visit.do(
        "delete", path_run=run.id, confirm="Delete it?", back="/ui/runs", sure="yes", said="it is deleted"
    )
    assert (visit.last.url.path, visit.said) == ("/ui/runs", "it is deleted")
    assert visit.kit.run(visit.kit.app.get, run.id) is None
    assert visit.text("/runs").count("it is deleted") == 0  # a message is shown once


def test_a_form_brings_numbers_lists_and_json(visit):
    visit.get("/")
    number = "123456789012345678901234567890"
    visit.do("start", body_type="shop.quick.v1", body_params=f'{{"n": {number}}}', body_priority="7",
             body_labels='{"customer": "42"}', back="/ui/runs")  # fmt: skip
    (run,) = visit.kit.run(visit.kit.app.list)
    assert (run.priority, run.labels) == (7, {"customer": "42"})
    assert number in str(visit.kit.run(visit.kit.app.known, run.id).params)
    visit.get("/")
    visit.do("start", body_type="shop.quick.v1", body_params="{nope", back="/ui/runs")
    assert visit.said.startswith("params: this is not JSON")
    visit.do("start", body_type="shop.quick.v1", body_priority="x", back="/ui/runs")
    assert "body.priority" in visit.said


def test_every_page_of_the_menu_is_shown_for_an_empty_and_a_full_store(visit, furnished_visit):
    assert len(all_pages()) >= len(menu_pages()) >= 2
    for one in menu_pages():
        visit.text(one.path)
        furnished_visit.text(one.path)
