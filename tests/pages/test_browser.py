"""Pages in a real browser: accessibility, live parts, keys, widths, colours, no script, hostile texts."""

from __future__ import annotations

import pytest

from holdfast.http.pages.page import menu_pages
from holdfast.records import ANY, Scope
from tests.http.kit import furnished, new_key, shop, store_of
from tests.pages.canaries import fill, hostile_app
from tests.pages.kit import PHONE, wait_for_rows

pytestmark = pytest.mark.slow
TILE = ".tile:has(.s-pending) b"


def test_no_page_of_the_menu_has_serious_faults(site, browser):
    app = hostile_app()
    served = site(app)
    served.call(fill, app)
    page = browser.page(f"{served.url}/", color_scheme="light")
    for one in menu_pages():
        page.goto(f"{served.url}{one.path}")
        browser.check_accessible(page)
        page.emulate_media(color_scheme="dark")
        browser.check_accessible(page, "color-contrast")  # nothing else differs in the dark
        page.emulate_media(color_scheme="light")


def test_hostile_texts_run_no_script_and_load_nothing(site, browser):
    app = hostile_app()
    served = site(app)
    served.call(fill, app)
    page = browser.page(f"{served.url}/")
    addresses = {f"{served.url}{one.path}" for one in menu_pages()}
    addresses |= {f"{served.url}/runs?status={one}" for one in ("waiting", "failed", "succeeded")}
    addresses |= {f"{served.url}/runs?q=%3Cscript%3Ewindow.hacked%3D1", f"{served.url}/%3Cscript%3E"}
    for address in sorted(addresses):
        page.goto(address)
        page.mouse.move(200, 300)
        assert page.evaluate("window.hacked") is None, address
    browser.troubles = [one for one in browser.troubles if "404" not in one]  # the address of a script


def test_every_page_fits_on_a_phone(site, browser):
    app = hostile_app()
    served = site(app)
    served.call(fill, app)
    page = browser.page(f"{served.url}/", viewport=PHONE)
    for one in menu_pages():
        page.goto(f"{served.url}{one.path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], one.path


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
def test_a_part_is_updated_while_one_looks_until_it_is_paused(site, browser, kind, request, tmp_path):
    app = shop(store_of(kind, request, tmp_path))
    served = site(app)
    page = browser.page(f"{served.url}/")
    served.call(app.start, "shop.report.v1")
    page.locator(TILE, has_text="1").wait_for()
    page.get_by_role("button", name="Pause updates").click()
    assert page.get_by_role("button", name="Updates are paused").get_attribute("aria-pressed") == "true"
    served.call(app.start, "shop.report.v1")
    page.wait_for_timeout(1500)
    assert page.locator(TILE).text_content() == "1"
    page.get_by_role("button", name="Updates are paused").click()
    page.locator(TILE, has_text="2").wait_for()


def test_a_row_that_leaves_the_list_is_marked(site, browser):
    app = shop()
    served = site(app)
    runs = [served.call(app.start, "shop.quick.v1", delay=60).id for _ in range(3)]
    page = browser.page(f"{served.url}/runs?status=pending")
    served.call(app.cancel, runs[0])
    marked = page.locator("tr.gone", has_text="not updated any more")
    marked.wait_for()
    assert marked.get_attribute("id") == f"row-{runs[0]}"
    page.get_by_role("button", name="Pause updates").click()
    served.call(app.cancel, runs[1])
    served.call(app.cancel, runs[2])
    page.get_by_role("button", name="Updates are paused").click()
    page.locator("tr.gone").nth(2).wait_for()  # also what has left meanwhile, and an empty list


def test_the_page_of_a_run_that_is_deleted_says_that_it_is_old(site, browser):
    app = shop()
    served = site(app)
    run = served.call(app.start, "shop.quick.v1", delay=60).id
    page = browser.page(f"{served.url}/runs/{run}")
    page.locator("#explain .s-pending").wait_for()
    served.call(app.delete, run)
    page.locator("#lost", has_text="This page is not updated any more.").wait_for()


def test_new_rows_are_announced_and_not_inserted(site, browser):
    app = shop()
    served = site(app)
    served.call(app.start, "shop.quick.v1", delay=60)
    page = browser.page(f"{served.url}/runs")
    page.locator(".row a").first.focus()
    first = served.call(app.start, "shop.quick.v1", delay=60)
    page.get_by_text("1 new row").first.wait_for()
    assert page.locator(".row").count() == 1
    assert page.evaluate("document.activeElement.className") == "id"
    (known,) = [one for one in served.call(app.list) if one.id != first.id]
    served.call(app.cancel, known.id)  # a row that is there changes where it is, and keeps the focus
    page.locator(".row .s-cancelled").wait_for()
    assert page.evaluate("document.activeElement.className") == "id"
    page.get_by_role("link", name="Show").click()
    wait_for_rows(page, 2)


def test_keys_move_search_and_help_unless_they_are_off(site, browser):
    app = shop()
    served = site(app)
    for _ in range(3):
        served.call(app.start, "shop.quick.v1", delay=60)
    page = browser.page(f"{served.url}/runs")
    ids = page.eval_on_selector_all(".row a", "all => all.map((one) => one.title)")
    focused = "document.activeElement.title"
    for key, place in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        page.keyboard.press(key)
        assert page.evaluate(focused) == ids[place]
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("j")
    assert page.input_value("#q") == "j"
    page.locator("h1").click()
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.locator(".who summary").click()
    with page.expect_navigation():
        page.locator("form:has-text('Keyboard') button[value=off]").click()
    page.keyboard.press("j")
    assert page.evaluate(focused) != ids[0]


def test_all_works_without_script(site, browser):
    app = shop()
    served = site(app)
    runs = [served.call(app.start, "shop.quick.v1", delay=60).id for _ in range(2)]
    page = browser.page(f"{served.url}/runs", java_script_enabled=False)
    assert not page.get_by_role("button", name="Pause updates").is_visible()
    page.get_by_label("All runs that match").select_option("pause")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Begin: pause 2 runs").click()
    assert "the bulk operation has begun" in page.text_content("main")
    page.get_by_role("button", name="Give up").click()
    page.get_by_role("button", name="Yes, do it").click()
    assert "cancelled" in page.text_content("main")
    page.goto(f"{served.url}/runs")
    page.locator(".filters summary").click()
    page.get_by_label("pending").check()
    page.get_by_role("button", name="Filter", exact=True).click()
    wait_for_rows(page, len(runs))
    page.locator(".who summary").click()
    page.locator("button[value=dark]").click()
    assert page.get_attribute("html", "data-theme") == "dark"


def test_a_sub_path_mount_works_in_a_browser(site, browser):
    app = shop()
    served = site(app, prefix="/tools/holdfast")
    served.call(app.start, "shop.quick.v1", delay=60)
    page = browser.page(f"{served.url}/")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    wait_for_rows(page, 1)
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"  # the stylesheet was found


def test_a_read_only_key_sees_no_button(site, browser):
    app = shop()
    served = site(app, open=False)
    served.call(app.start, "shop.quick.v1", delay=60)
    _, text = served.call(new_key, app.store, "default", (Scope.RUNS_READ, Scope.PAYLOADS_READ))
    page = browser.page(f"{served.url}/runs")
    page.get_by_label("API key").fill(text)
    page.get_by_role("button", name="Sign in").click()
    wait_for_rows(page, 1)
    page.wait_for_load_state()
    assert page.get_by_role("button", name="Preview").count() == 0
    assert page.evaluate("document.cookie") == ""
    page.locator(".who summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.goto(f"{served.url}/runs")
    assert page.get_by_label("API key").is_visible()


def test_a_page_says_when_its_updates_have_stopped(site, browser):
    app = shop()
    served = site(app, open=False)
    key, text = served.call(new_key, app.store, "default", (Scope.RUNS_READ, Scope.PAYLOADS_READ))
    page = browser.page(f"{served.url}/")
    page.get_by_label("API key").fill(text)
    page.get_by_role("button", name="Sign in").click()
    assert not page.locator("#lost").is_visible()
    served.call(app.store.revoke_key, key.id, ANY)
    page.get_by_text("The connection is lost").first.wait_for()
    browser.troubles = [one for one in browser.troubles if "401" not in one]  # the stream is refused


def test_what_somebody_types_is_not_replaced(site, browser):
    app = shop()
    served = site(app)
    run = served.call(furnished, app, "default").runs["gate"]
    page = browser.page(f"{served.url}/runs/{run}")
    page.get_by_label("Comment").fill("half a")
    page.locator("h1").click()  # the field has no focus any more
    served.call(app.pause, run)
    page.locator(".explain .s-paused").wait_for()
    assert page.get_by_label("Comment").input_value() == "half a"
