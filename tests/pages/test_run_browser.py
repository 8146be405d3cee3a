"""The page of one run in a real browser: actions, live parts, no script, a phone, and hostile text."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from tests.pages.kit import PHONE

pytestmark = pytest.mark.slow

# Each would set `hacked` if it were ever executed.
CANARIES = (
    "<script>window.hacked=1</script>", '"><img src=x onerror=window.hacked=1>',
    "'><svg onload=window.hacked=1>",
    "javascript:window.hacked=1", "</textarea><script>window.hacked=1</script>", "{{7*7}}<b onclick=x>",
    "</title><script>window.hacked=1</script>", "<iframe srcdoc='<script>top.hacked=1</script>'>",
    '<a href="javascript:window.hacked=1">x</a>', "</pre><style>*{display:none}</style>\u202e\x1b[31m",
)  # fmt: skip
ALL = " ".join(CANARIES)


def hostile():
    """An app whose producers write hostile text wherever they can."""
    app = hf.App("memory://")

    @app.workflow("shop.hostile.v1", retry=hf.Backoff.fixed(0, attempts=1))
    async def hostile(ctx, params):
        def flaky():
            if not tried:
                tried.append(1)
                raise ValueError(ALL)
            return {ALL[:200]: ALL}

        tried = []
        ctx.log(ALL, level=CANARIES[0][:30], more=ALL)
        ctx.progress(1, 2, ALL[:150])
        await ctx.step(ALL[:200], flaky, retry=hf.Backoff.fixed(0, attempts=3))
        if params["end"] == "fail":
            raise hf.Fatal(ALL, ALL)
        if params["end"] == "child":
            await ctx.call("shop.hostile.v1", {"end": "wait"}, key=ALL[:150])
        if params["end"] == "gate":
            await ctx.approval(CANARIES[1], ask=ALL, data={"x": ALL})
        await ctx.await_event(CANARIES[2])

    return app


async def hostile_runs(app):
    """Start runs with hostile text in params, labels, key and limit key; let them be executed."""
    runs = {}
    for end in ("fail", "gate", "wait", "child"):
        options = {
            "labels": {CANARIES[1]: CANARIES[0]},
            "key": f"{CANARIES[0]}{end}",
            "limit_key": CANARIES[3],
        }
        runs[end] = (await app.start("shop.hostile.v1", {"end": end, ALL[:100]: ALL}, **options)).id
    for run in runs.values():
        await worked(app, run)
    await app.pause(runs["wait"], by=ALL[:200])
    return runs


def test_hostile_text_is_only_text(site, browser):
    app = hostile()
    served = site(app)
    runs = served.call(hostile_runs, app)
    page = browser.page(f"{served.url}/runs/{runs['gate']}")
    for run in runs.values():
        for path in ("", "/rerun", "/trail"):
            page.goto(f"{served.url}/runs/{run}{path}")
            assert page.evaluate("window.hacked") is None
            assert page.locator("main script, main iframe, main img, main style").count() == 0
        page.goto(f"{served.url}/runs/{run}")
        page.locator("td a").first.click()
        page.locator("#step").wait_for()
        page.wait_for_function("document.querySelector('[data-pause]') !== null")
        assert page.evaluate("window.hacked") is None


def shop():
    """An app with a run that waits for an event, and one that waits at a gate."""
    app = hf.App("memory://")

    @app.workflow("shop.order.v1", retry=hf.Backoff.fixed(0, attempts=1))
    async def order(ctx, order: dict):
        await ctx.step("reserve", lambda: order)
        if order.get("fails"):
            await ctx.step("charge", _declined)
        await ctx.approval("release", ask="Ship it?", data=order)
        await ctx.await_event("paid")
        return order

    return app


def _declined():
    raise hf.Fatal("declined")


async def worked(app, run):
    async with app.worker(poll=0.01):
        while (await app.known(run)).status in {"pending", "leased"}:  # noqa: ASYNC110 - a worker is at it
            await asyncio.sleep(0.01)


def test_each_action_is_done_by_its_button_without_script(site, browser):
    """The pages are forms and links; script only adds to them."""
    app = shop()
    served = site(app)
    run = served.call(app.start, "shop.order.v1", {"n": 1}).id
    page = browser.page(f"{served.url}/runs/{run}", java_script_enabled=False)

    def press(name, sure=False):
        page.get_by_role("button", name=name, exact=True).click()
        if sure:
            page.get_by_role("button", name="Yes, do it").click()
        return page.locator(".said").inner_text()

    def status():
        return str(served.call(app.known, run).status)

    assert "pauses" in press("Pause the run")
    assert status() == "paused"
    press("Resume the run")
    served.call(worked, app, run)
    page.reload()
    page.get_by_label("Comment").fill("fine")
    assert "is approved" in press("Approve")
    served.call(worked, app, run)
    page.reload()
    page.locator("details.emit summary").click()
    page.get_by_label("Payload").fill('{"eur": 3}')
    assert "sent" in press("Send")
    served.call(worked, app, run)
    assert status() == "succeeded"
    page.goto(f"{served.url}/runs/{run}?step=release")
    assert "rewound" in press("Rewind to here…", sure=True)
    served.call(worked, app, run)
    assert status() == "waiting"
    page.reload()
    assert "is rejected" in press("Reject")
    page.get_by_role("link", name="Rerun…").click()
    page.get_by_label("Params").fill('{"n": 2, "fails": true}')
    assert "started" in press("Start")
    run = page.url.rpartition("/")[2]
    assert served.call(app.known, run).params == {"n": 2, "fails": True}
    served.call(worked, app, run)
    page.reload()
    assert "continues" in press("Retry")
    assert "begins again" in press("Rewind to the beginning…", sure=True)
    assert "cancelled" in press("Cancel the run…", sure=True)
    assert status() == "cancelled"
    assert "deleted" in press("Delete the run…", sure=True)
    assert "there again" in press("Restore")


def test_a_refused_form_keeps_its_text_while_the_page_is_updated(site, browser):
    app = shop()
    served = site(app)
    run = served.call(app.start, "shop.order.v1", {"n": 1}).id
    served.call(worked, app, run)
    page = browser.page(f"{served.url}/runs/{run}")
    page.get_by_label("Comment").fill("typed")
    page.evaluate("document.querySelector('[name=\"body.digest\"]').value = 'f'.repeat(64)")
    page.get_by_role("button", name="Approve", exact=True).click()
    page.locator(".said.error").wait_for()
    served.call(app.set_priority, run, 7)
    page.locator("#facts", has_text="Priority").wait_for()  # live parts come to the page at its new address
    assert page.get_by_label("Comment").input_value() == "typed"
    browser.troubles = [one for one in browser.troubles if "409" not in one]  # the refusal


def test_the_page_is_updated_while_one_looks_and_fits_on_a_phone(site, browser):
    app = shop()
    served = site(app)
    run = served.call(app.start, "shop.order.v1", {"n": 1}).id
    page = browser.page(f"{served.url}/runs/{run}", viewport=PHONE)
    page.locator("#explain .s-pending").wait_for()
    served.call(worked, app, run)
    page.locator("#explain .s-waiting").wait_for()
    page.locator("#trail", has_text="gate release waits").wait_for()
    page.locator("#timeline .t-gate").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.reload()
    browser.check_accessible(page)
    page.goto(f"{served.url}/runs/{run}?step=reserve")
    browser.check_accessible(page)
    page.goto(f"{served.url}/runs/{run}/rerun")
    browser.check_accessible(page)
