"""Sign-in with an API key: sessions, cookies, expiry, scopes, forms of others."""

from __future__ import annotations

import re
import threading

import pytest
from msgspec.structs import replace

from holdfast.http import parsing, sessions
from holdfast.http.pages import actions
from holdfast.http.problems import Refusal
from holdfast.records import ANY, Scope
from tests.http.kit import Kit
from tests.pages.kit import Visit

READ = (Scope.RUNS_READ, Scope.PAYLOADS_READ)


def set_cookies(response):
    return [one for past in response.history for one in past.headers.get_list("set-cookie")]


def test_a_page_leads_to_the_sign_in_and_back(keyed_visit):
    response = keyed_visit.get("/runs?status=failed")
    assert response.url.path == "/ui/sign-in"
    assert 'value="/ui/runs?status=failed"' in response.text
    keyed_visit.sign_in_with(keyed_visit.kit.key(*READ), next="/ui/runs?status=failed")
    assert str(keyed_visit.last.url).endswith("/ui/runs?status=failed")


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/", "//evil.example", "/\\evil.example", "/ui/\n/x", ""]
)
def test_a_sign_in_leads_to_no_other_site(keyed_visit, wanted):
    keyed_visit.sign_in_with(keyed_visit.kit.key(*READ), next=wanted)
    assert (keyed_visit.last.url.host, keyed_visit.last.url.path) == ("localhost", "/ui/")


@pytest.mark.spec("TEN-3")
def test_the_session_is_a_random_id_that_scripts_and_other_sites_do_not_get(keyed_visit):
    (cookie,) = set_cookies(keyed_visit.sign_in(*READ))
    name, _, rest = cookie.partition("=")
    value = rest.partition(";")[0]
    assert name.startswith("holdfast_")
    assert len(value) >= 43
    assert {"HttpOnly", "Path=/ui", "SameSite=strict"} <= set(rest.split("; "))
    assert "Secure" not in rest
    (again,) = set_cookies(keyed_visit.sign_in(*READ))
    assert value not in again  # a new one at each sign-in, and the one before is dead
    keyed_visit.client.cookies.clear()
    keyed_visit.client.cookies.set(name, value, path="/ui")
    assert keyed_visit.get("/").url.path == "/ui/sign-in"


def test_behind_tls_the_cookie_is_secure():
    with Kit() as kit:
        kit.client.base_url = "https://localhost"
        visit = Visit(kit)
        (cookie,) = set_cookies(visit.sign_in(*READ))
        assert "; Secure" in cookie


def test_a_wrong_key_is_refused_with_one_line(keyed_visit):
    response = keyed_visit.sign_in_with("hf_abcdefghijkl_" + "x" * 32)
    assert response.status_code == 403
    assert keyed_visit.said == "This API key is unknown, expired or revoked."
    assert set_cookies(response) == []


def test_failed_sign_ins_are_limited(keyed_visit):
    key = keyed_visit.kit.key(*READ)
    for _ in range(sessions.FAILURES):
        assert keyed_visit.sign_in_with("wrong").status_code == 403
    response = keyed_visit.sign_in_with(key)
    assert response.status_code == 429
    said = r"Too many sign-ins from your address have failed: wait (\d+) s\. Until then even a valid key .*"
    left = re.fullmatch(said, keyed_visit.said)[1]
    assert "<h1>Sign in</h1>" in response.text
    assert response.headers["retry-after"] == left
    assert 1 <= int(left) <= sessions.FAILURES_SECONDS
    keyed_visit.text("/sign-in?next=/ui/runs")
    assert re.fullmatch(said, keyed_visit.said)  # also before anything is sent
    keyed_visit.kit.api.access.sessions.failures._failed.clear()
    assert keyed_visit.sign_in_with(key).status_code == 200


def test_a_sign_in_that_failed_still_knows_where_to_go(keyed_visit):
    response = keyed_visit.sign_in_with("wrong", next="/ui/runs?status=failed")
    assert 'name="next" value="/ui/runs?status=failed"' in response.text


def test_sign_ins_that_come_together_are_counted_before_they_are_checked(keyed_visit):
    failures = keyed_visit.kit.api.access.sessions.failures
    for _ in range(sessions.FAILURES):
        failures.begin("10.0.0.1")
    with pytest.raises(Refusal):
        failures.begin("10.0.0.1")
    failures.begin("10.0.0.2")
    failures.succeed("10.0.0.1")
    failures.begin("10.0.0.1")


def test_no_number_of_failures_of_others_keeps_a_valid_key_out(keyed_visit):
    failures = keyed_visit.kit.api.access.sessions.failures
    for number in range(2_000):
        failures.begin(f"10.1.{number // 250}.{number % 250}")
    assert keyed_visit.sign_in(*READ).status_code == 200


def test_one_machine_is_one_address(keyed_visit):
    failures = keyed_visit.kit.api.access.sessions.failures
    for number in range(sessions.FAILURES):
        failures.begin(f"2001:db8:1:2::{number:x}")
    with pytest.raises(Refusal):
        failures.begin("2001:db8:1:2:ffff::1")
    failures.begin("2001:db8:1:3::1")
    failures.begin("fe80::1%eth0")


def test_good_sign_ins_are_not_counted(keyed_visit):
    for _ in range(sessions.FAILURES + 2):
        assert keyed_visit.sign_in(*READ).status_code == 200


def test_guessed_sessions_push_no_known_one_out(keyed_visit, monkeypatch):
    monkeypatch.setattr(sessions, "UNKNOWN", 3)
    monkeypatch.setattr(sessions, "REMEMBERED", 3)
    keyed_visit.sign_in(*READ)
    found = keyed_visit.kit.api.access.sessions
    (session,) = found._known
    for number in range(5):
        assert keyed_visit.kit.run(found.find, f"guess {number}") is None
    assert list(found._known) == [session]
    assert len(found._unknown) == 3


def test_the_session_of_an_open_page_is_read_less_often(keyed_visit):
    keyed_visit.sign_in(*READ)
    kit, calls = keyed_visit.kit, []
    (session,) = kit.api.access.sessions._known
    use = kit.app.store.use_session

    async def counted(id_hash):
        calls.append(id_hash)
        return await use(id_hash)

    kit.app.store.use_session = counted
    actor = kit.run(kit.api.access.of_key, *_key_of(kit, session))
    actor = replace(actor, session=session)
    for _ in range(5):
        assert kit.run(kit.api.access.is_live, actor)
    assert calls == []
    kit.api.access.sessions._known[session] = (kit.api.access.sessions._known[session][0], -1e9)
    assert kit.run(kit.api.access.is_live, actor)
    assert calls == [session]


def _key_of(kit, session):
    found = kit.api.access.sessions._known[session][0]
    return found.key_id, found.secret_hash


def test_a_session_dies_with_its_key(keyed_visit):
    kit = keyed_visit.kit
    key = kit.key(*READ)
    keyed_visit.sign_in_with(key)
    assert keyed_visit.get("/runs").url.path == "/ui/runs"
    kit.run(kit.app.store.revoke_key, key.split("_")[1], ANY)
    kit.api.access._known.clear()  # as after access.REMEMBER_SECONDS
    assert keyed_visit.get("/runs").url.path == "/ui/sign-in"


def test_a_sign_out_ends_the_session(keyed_visit):
    keyed_visit.sign_in(*READ)
    kept = dict(keyed_visit.client.cookies)
    csrf = keyed_visit.csrf
    response = keyed_visit.client.post("/ui/sign-out", data={"csrf": csrf})
    assert response.url.path == "/ui/sign-in"
    for name, value in kept.items():
        keyed_visit.client.cookies.set(name, value, path="/ui")
    assert keyed_visit.get("/").url.path == "/ui/sign-in"
    rows = keyed_visit.kit.run(keyed_visit.kit.app.store.audit, ANY)
    assert [one.action for one in rows][:2] == ["sign_out", "sign_in"]


def test_a_form_of_another_visitor_is_refused(keyed_visit):
    keyed_visit.sign_in(*READ, Scope.RUNS_WRITE)
    theirs = keyed_visit.csrf
    keyed_visit.sign_in(*READ, Scope.RUNS_WRITE)
    run = keyed_visit.kit.run(keyed_visit.kit.app.start, "shop.quick.v1", delay=60)
    for csrf in (theirs, "", "x"):
        response = keyed_visit.do("cancel", path_run=run.id, csrf=csrf or "-")
        assert response.status_code == 403
        assert "load the page again" in keyed_visit.said
        keyed_visit.get("/")
    assert keyed_visit.kit.run(keyed_visit.kit.app.known, run.id).status == "pending"


def test_a_form_of_another_site_is_refused(visit):
    visit.get("/")
    response = visit.client.post(
        "/ui/do/emit", data={"csrf": visit.csrf, "body.topic": "t"}, headers={"sec-fetch-site": "cross-site"}
    )
    assert response.status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "flows.example", "origin": "http://evil.example"}, 403),
        ({"host": "flows.example", "origin": "null"}, 403),
        ({"host": "flows.example", "origin": "http://flows.example:8080"}, 200),  # a proxy drops the port
        ({"host": "127.0.0.1:8080", "origin": "https://flows.example"}, 200),  # a proxy replaces the Host
        ({"host": "flows.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_without_tls_the_origin_of_a_form_counts(keyed_visit, headers, status):
    data = {"key": keyed_visit.kit.key(*READ)}
    response = keyed_visit.client.post("/ui/sign-in", data=data, headers=headers, follow_redirects=False)
    assert response.status_code == (303 if status == 200 else status)


def test_a_link_on_another_site_leads_to_an_open_server(visit):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
    response = visit.get("/runs", headers=headers)
    assert (response.status_code, "opened from another site" in response.text) == (200, True)
    assert visit.get("/runs", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_an_action_needs_its_scope(keyed_visit):
    keyed_visit.sign_in(*READ)
    run = keyed_visit.kit.run(keyed_visit.kit.app.start, "shop.quick.v1", delay=60)
    keyed_visit.do("cancel", path_run=run.id, back="/ui/runs")
    assert "runs.write" in keyed_visit.said
    assert keyed_visit.kit.run(keyed_visit.kit.app.known, run.id).status == "pending"


def test_a_page_needs_its_scope_and_the_menu_shows_no_other(keyed_visit):
    keyed_visit.sign_in(Scope.METRICS)
    response = keyed_visit.get("/runs")
    assert response.status_code == 403
    assert "runs.read" in keyed_visit.said
    assert 'href="/ui/runs"' not in response.text


def test_another_operation_than_an_action_is_not_reached(visit):
    visit.get("/")
    for name in ("list", "claim", "healthz", "nothing"):
        assert visit.do(name).status_code == 404


def test_a_form_is_read_only_when_its_sender_may_send_one(keyed_visit):
    def post(path, size, **headers):
        return keyed_visit.client.post(
            f"/ui{path}",
            content=b"key=" + b"a" * size,
            headers={"content-type": "application/x-www-form-urlencoded", **headers},
            follow_redirects=False,
        )

    assert post("/sign-in", 20_000).status_code == 413
    for path in ("/do/emit", "/sign-out", "/preferences"):
        assert post(path, 5_000_000).headers["location"].startswith("/ui/sign-in")
    for _ in range(sessions.FAILURES):
        keyed_visit.sign_in_with("wrong")
    assert post("/sign-in", 20_000).status_code == 429
    keyed_visit.kit.api.access.sessions.failures._failed.clear()
    keyed_visit.sign_in(*READ)
    for path in ("/sign-out", "/preferences"):
        assert post(path, 20_000).status_code == 413
    assert post("/do/emit", 20_000).status_code == 403  # its token is missing
    assert post("/do/emit", 5_000_000).status_code == 413


def test_a_large_form_is_parsed_in_a_thread(visit, monkeypatch):
    threads = []

    def seen(function):
        def wrapped(*args, **options):
            threads.append((function.__name__, threading.current_thread().name))
            return function(*args, **options)

        return wrapped

    for module, name in ((actions, "parse_qsl"), (actions, "composed"), (parsing, "parsed_body")):
        monkeypatch.setattr(module, name, seen(getattr(module, name)))
    visit.get("/")
    visit.do("emit", body_topic="t", body_payload=f'"{"x" * 100}"', back="/ui/events")
    (loop,) = {thread for _, thread in threads}
    threads.clear()
    visit.do("emit", body_topic="t", body_payload=f'"{"x" * 100_000}"', back="/ui/events")
    assert visit.said == "the event t is sent; no run waited for it yet"
    assert {name for name, _ in threads} == {"parse_qsl", "composed", "parsed_body"}
    assert loop not in {thread for _, thread in threads}
