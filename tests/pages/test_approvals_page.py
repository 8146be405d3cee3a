"""The approvals inbox, and signed links to one gate."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from uuid import UUID

import pytest

from holdfast.http.gate_links import GateLink, make_link
from holdfast.http.signing import Signing
from holdfast.records import Scope
from tests.http.kit import Kit, shop
from tests.pages.kit import Visit

DECIDER = (Scope.APPROVALS_DECIDE,)


def app_with_gates():
    app = shop()

    @app.workflow("shop.pay.v1")
    async def pay(ctx, amount: int):
        return (await ctx.approval("boss", ask=f"Pay {amount}?", data={"amount": amount})).comment

    return app


@pytest.fixture
def gated():
    """A visitor of a server with keys, and a run that waits at a gate."""
    with Kit(app_with_gates()) as kit:
        visit = Visit(kit)
        visit.run = kit.run(kit.app.start, "shop.pay.v1", 100).id
        kit.work(visit.run)
        yield visit


def digest_of(visit):
    return re.search(r'name="body.digest" value="([^"]+)"', visit.last.text)[1]


def link_of(visit):
    text = visit.text(f"/approvals/link?run={visit.run}&step=boss")
    return unescape(re.search(r'href="/ui(/approvals/gate[^"]+)"', text)[1])


def status(visit):
    return visit.kit.run(visit.kit.app.known, visit.run).status


@pytest.mark.spec("APPR-7")
def test_the_inbox_shows_what_is_asked_and_decides_with_a_comment(gated):
    gated.sign_in(*DECIDER, name="ada")
    text = gated.text("/approvals")
    assert "Pay 100?" in text
    assert '<span class="j-number">100</span>' in text
    given = {"path_run": gated.run, "body_step": "boss", "body_digest": digest_of(gated)}
    gated.do("approve", **given, body_comment="fine", back="/ui/approvals")
    assert gated.said == "gate boss is approved"
    assert "No gate waits" in gated.last.text
    gated.kit.work(gated.run)
    assert gated.kit.run(gated.kit.app.result, gated.run) == "fine"


def test_who_may_only_decide_begins_at_the_inbox(gated):
    assert gated.sign_in(*DECIDER).url.path == "/ui/approvals"


@pytest.mark.spec("APPR-6")
def test_a_decision_counts_only_for_what_the_person_saw(gated):
    gated.sign_in(*DECIDER)
    gated.text("/approvals")
    gated.do("reject", path_run=gated.run, body_step="boss", body_digest="f" * 64, back="/ui/approvals")
    assert "digest" in gated.said
    assert status(gated) == "waiting"


def test_who_may_only_read_sees_neither_question_nor_buttons(gated):
    gated.sign_in(Scope.RUNS_READ)
    text = gated.text("/approvals")
    assert "Pay 100?" not in text
    assert "gate <b>boss</b>" in text
    assert "/do/approve" not in text
    gated.do("approve", path_run=gated.run, back="/ui/approvals")
    assert "approvals.decide" in gated.said
    assert status(gated) == "waiting"


def test_a_link_shows_one_gate_and_needs_a_sign_in(gated):
    gated.sign_in(*DECIDER)
    link = link_of(gated)
    assert "Pay 100?" in gated.text(link)
    assert status(gated) == "waiting"  # a GET never decides
    gated.client.cookies.clear()
    response = gated.get(link)
    assert response.url.path == "/ui/sign-in"
    assert "Pay 100?" not in response.text
    gated.sign_in_with(gated.kit.key(*DECIDER), next=f"/ui{link}")
    assert "Pay 100?" in gated.last.text
    gated.do("approve", path_run=gated.run, body_step="boss", body_digest=digest_of(gated), back=f"/ui{link}")
    assert gated.said == "gate boss is approved"
    assert "not open any more" in gated.last.text


def test_a_link_gives_no_right(gated):
    gated.sign_in(*DECIDER)
    link = link_of(gated)
    gated.sign_in(Scope.RUNS_READ)
    text = gated.text(link)
    assert "/do/approve" not in text
    assert "Pay 100?" not in text
    gated.sign_in(*DECIDER, tenant="other")
    for path in (link, link.replace("tenant=default", "")):
        response = gated.get(path)
        assert response.status_code in {403, 404}
        assert "Pay 100?" not in response.text


def test_a_link_expires_and_cannot_be_changed(gated):
    gated.sign_in(*DECIDER)
    link = link_of(gated)
    assert gated.get(link[:-3] + "AAA").status_code == 404
    assert gated.get("/approvals/gate").status_code == 404
    past = datetime.now(UTC) - timedelta(seconds=1)
    text = make_link(gated.kit.api.signing.cursors, GateLink("default", gated.run, "boss", None, past))
    response = gated.get(f"/approvals/gate?link={text}")
    assert response.status_code == 404
    assert "expired" in gated.said


def test_a_link_to_a_gate_that_shows_something_else_does_not_decide(gated):
    gated.sign_in(*DECIDER)
    until = datetime.now(UTC) + timedelta(hours=1)
    text = make_link(gated.kit.api.signing.cursors, GateLink("default", gated.run, "boss", "0" * 64, until))
    shown = gated.text(f"/approvals/gate?link={text}")
    assert "shows something else now" in shown
    assert "/do/approve" not in shown


def test_a_cursor_is_no_link(gated):
    gated.sign_in(*DECIDER)
    cursor = gated.kit.api.signing.cursors.make(
        "approvals", "", None, ("default", str(gated.run), "boss", None, 2**60)
    )
    assert gated.get(f"/approvals/gate?link={cursor}").status_code == 404


def test_a_link_that_another_server_signed_with_a_newer_key_is_good(gated):
    gated.sign_in(*DECIDER)
    gated.kit.run(gated.kit.app.store.add_signing_key, b"n" * 32)
    newer = Signing(gated.kit.app.store, gated.kit.api.world)
    gated.kit.run(newer.read)
    until = datetime.now(UTC) + timedelta(hours=1)
    text = make_link(newer.cursors, GateLink("default", UUID(int=1), "boss", None, until))
    gated.kit.api.signing._read_at = float("-inf")  # a second has passed
    assert "not open any more" in gated.text(f"/approvals/gate?link={text}")
