"""Pages of approvals and of operators in a real browser."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from holdfast.records import Scope
from tests.http.kit import furnished, new_key, shop, store_of
from tests.pages.canaries import KEPT
from tests.pages.hostile import hostile, hostile_app
from tests.pages.kit import PHONE

pytestmark = pytest.mark.slow

PATHS = ["/approvals", "/workflows", "/workflows/shop.plan.v1", "/schedules", "/schedules/nightly%20default",
         "/limits", "/workers", "/outbox?status=pending", "/events", "/keys", "/audit"]  # fmt: skip


@pytest.fixture
def furnished_site(site):
    """A site with one thing of each kind."""
    app = shop()
    served = site(app)
    served.things = served.call(furnished, app, "default")
    served.call(app.limit, key="api", concurrency=2)
    return served


def test_all_pages_fit_on_a_phone_and_those_outside_of_the_menu_are_accessible(furnished_site, browser):
    page = browser.page(f"{furnished_site.url}/approvals", viewport=PHONE, color_scheme="dark")
    page.get_by_role("link", name="Link to this gate").first.click()
    making = page.url.removeprefix(furnished_site.url)
    page.get_by_role("link", name="Open the link").click()
    opened = page.url.removeprefix(furnished_site.url)
    for path in [*PATHS, making, opened]:
        page.goto(f"{furnished_site.url}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        if path.count("/") > 1 or path == "/limits":  # another test looks at the menu; limits need one limit
            browser.check_accessible(page)


def test_each_action_once(furnished_site, browser):
    url = furnished_site.url
    page = browser.page(f"{url}/approvals")

    def press(name, *, sure=False):
        page.get_by_role("button", name=name, exact=True).first.click()
        if sure:
            page.get_by_role("button", name="Yes, do it").click()

    def said(text):
        page.locator(".said", has_text=text).first.wait_for()

    page.get_by_label("Comment").first.fill("looks right")
    press("Approve")
    said("gate manager is approved")
    press("Reject")
    said("gate manager is rejected")
    page.goto(f"{url}/schedules")
    press("Pause")
    said("is paused")
    press("Resume")
    said("is resumed")
    page.goto(f"{url}/workflows/shop.quick.v1")
    press("Switch off", sure=True)
    said("is switched off")
    press("Switch on")
    said("is switched on")
    page.goto(f"{url}/limits")
    page.get_by_text("Change", exact=True).first.click()
    page.get_by_label("Runs at once").first.fill("7")
    press("Change")
    said("the limit is changed")
    assert page.locator("td.number").first.inner_text() == "7"
    press("Pause")
    said("is paused")
    press("Resume")
    said("is resumed")
    page.goto(f"{url}/events")
    page.get_by_label("Topic").first.fill("paid:42")
    page.get_by_label("Payload").fill('{"sum": 1}')
    press("Send")
    said("the event paid:42 is sent to 1 run")
    page.goto(f"{url}/keys")
    page.locator("summary", has_text="Rotate").first.click()
    press("Give it a new secret", sure=True)
    assert page.locator(".secret code").inner_text().startswith("hf_")
    page.get_by_role("link", name="I have it").click()
    press("Revoke", sure=True)
    said("is revoked")


def test_the_inbox_says_that_somebody_else_has_decided(furnished_site, browser):
    page = browser.page(f"{furnished_site.url}/approvals")
    page.get_by_label("Comment").first.fill("half a")
    furnished_site.call(furnished_site.app.approve, furnished_site.things.runs["gate"])
    page.get_by_text("Decided or closed meanwhile").first.wait_for()
    assert page.get_by_label("Comment").first.input_value() == "half a"


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_all_pages_on_each_store(kind, request, tmp_path, site, browser):
    app = shop(store_of(kind, request, tmp_path))
    served = site(app)
    served.call(furnished, app, "default")
    served.call(app.limit, key="api", concurrency=2)
    served.call(app.fire_schedule, "nightly default")
    page = browser.page(f"{served.url}/approvals")
    for path in PATHS:
        response = page.goto(f"{served.url}{path}")
        assert response.status == 200, path
        assert not page.locator(".empty").count() or path in {"/workers", "/audit"}, path
    page.goto(f"{served.url}/approvals")
    page.get_by_role("link", name="Link to this gate").nth(1).click()
    page.get_by_role("link", name="Open the link").click()
    page.get_by_role("button", name="Approve").first.click()
    page.locator(".said", has_text="is approved").wait_for()
    page.get_by_text("This gate is not open any more").wait_for()


def test_no_stored_text_runs_as_a_script(site, browser):
    app = hostile_app()
    served = site(app)
    run, *_ = served.call(hostile, app)
    page = browser.page(f"{served.url}/approvals")
    paths = ["/workflows", "/workflows/bad.plan.v1", "/workflows/bad.gate.v1", "/workflows/bad.wait.v1",
             "/schedules", "/limits", "/workers", "/outbox", "/events", "/keys", "/audit", "/approvals",
             f"/approvals/link?run={run}&step={quote(KEPT[0])}",
             *(f"/schedules/{quote(one, safe='')}" for one in KEPT[3:5])]  # fmt: skip
    for path in paths:
        page.goto(f"{served.url}{path}")
        for _ in range(4):
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            assert page.evaluate("window.hacked") is None, path
            if not page.locator("a[rel=next]").count():
                break
            page.locator("a[rel=next]").click()
    assert page.url.startswith(served.url)


def test_a_link_in_a_letter_needs_no_second_sign_in(site, browser):
    app = shop()
    served = site(app, open=False)
    things = served.call(furnished, app, "default")
    _, key = served.call(new_key, app.store, "default", (Scope.APPROVALS_DECIDE, Scope.RUNS_READ))
    page = browser.page(f"{served.url}/sign-in")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"{served.url}/approvals/link?run={things.runs['gate']}&step=manager")
    link = page.get_by_role("link", name="Open the link").evaluate("(one) => one.href")
    page.goto(
        "data:text/html,<a id=letter>Decide</a>"
    )  # another site: the browser sends no cookie from there
    page.evaluate("(link) => { document.getElementById('letter').href = link; }", link)
    page.locator("#letter").click()
    page.get_by_role("button", name="Approve").wait_for()
    assert served.call(app.known, things.runs["gate"]).status == "waiting"
