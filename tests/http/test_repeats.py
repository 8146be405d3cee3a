"""Refusals tell the truth about repeats; nothing is left out without a word; long names fit into cursors."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.errors import Unavailable
from holdfast.http import audit, docs
from holdfast.http.cursors import CURSOR_MAX
from holdfast.records import Scope
from tests.http.kit import Kit, shop

RUN = {"type": "shop.quick.v1", "delay": 3600}


def _away(kit, verb, error):
    async def fails(*_, **__):
        raise error

    setattr(kit.app.store, verb, fails)


@pytest.mark.spec("HTTP-4")
@pytest.mark.parametrize(("error", "status"), [(Unavailable("lost"), 503), (RuntimeError("bug"), 500)])
@pytest.mark.parametrize(
    ("verb", "path", "body", "keyed"),
    [
        ("start", "/runs", RUN, {"key": "k"}),
        ("start", "/bulk", {"verb": "cancel", "where": {}}, {"key": "k"}),
        ("emit", "/events", {"topic": "go"}, {"id": "e"}),
    ],
)
def test_only_what_would_be_recognised_is_called_retryable(verb, path, body, keyed, error, status):
    """Without a key the first request may have been recorded, and a second one would do it all again."""
    with Kit(shop()) as kit:
        key = kit.key()
        _away(kit, verb, error)
        for more, retryable in (({}, False), (keyed, True)):
            answer = kit.ask("POST", path, key, json={**body, **more})
            assert (answer.status_code, answer.json()["retryable"]) == (status, retryable), more
            assert ("retry-after" in answer.headers) == (retryable and status == 503)


@pytest.mark.spec("HTTP-4")
def test_items_of_a_batch_say_so_one_by_one():
    with Kit(shop()) as kit:
        key = kit.key()

        async def start(runs, connection=None):
            return [Unavailable("lost") for _ in runs]

        kit.app.store.start = start
        answer = kit.ask("POST", "/runs/batch", key, json={"starts": [RUN, {**RUN, "key": "k"}]})
        assert [one["problem"]["retryable"] for one in answer.json()["items"]] == [False, True]


@pytest.mark.spec("TEN-1")
def test_refusals_that_cannot_be_noted_are_counted_in_the_log(kit, caplog, monkeypatch):
    monkeypatch.setattr(audit, "REFUSALS_SECONDS", 0.0)
    monkeypatch.setattr(audit, "REFUSALS", 1)
    for _ in range(3):
        key = kit.key(Scope.RUNS_READ)
        for _ in range(4):
            assert kit.ask("GET", "/keys", key).status_code == 403
    noted, real = [], kit.app.store.note_audit

    async def note(rows):
        noted.append(len(rows))
        if len(noted) > 1:
            raise Unavailable("away")
        await real(rows)

    kit.app.store.note_audit = note
    monkeypatch.setattr(audit, "AUDIT_BATCH", 2)
    with caplog.at_level(logging.ERROR, "holdfast.http"), pytest.raises(Unavailable):
        kit.run(kit.api.audit.flush_refusals)
    assert noted == [2, 1]  # no row is dropped because there are many
    assert [one.getMessage() for one in caplog.records] == ["the audit log lacks 3 refusals of 1 keys (away)"]


@pytest.mark.spec("HTTP-1")
def test_a_gate_with_the_longest_name_has_a_next_page():
    app = shop()

    @app.workflow("shop.long.v1")
    async def long(ctx, name: str):
        await ctx.approval(name, ask="?")

    async def waiting():
        runs = [await app.start(long, name) for name in ("\x01" * 600, "ok")]
        async with app.worker(poll=0.01):
            while len(await app.approvals()) < len(runs):  # noqa: ASYNC110 - a worker is at it
                await asyncio.sleep(0.01)

    with Kit(app) as kit:
        kit.run(waiting)
        key = kit.key()
        first = kit.ask("GET", "/approvals?limit=1", key).json()
        assert 4000 < len(first["next"]) <= CURSOR_MAX
        second = kit.ask("GET", f"/approvals?limit=1&cursor={first['next']}", key)
        assert (second.status_code, len(second.json()["items"])) == (200, 1)
        place = (("\x01" * 700), "\x01" * 36)
        assert len(kit.api.signing.cursors.make("approvals", "\x01" * 255, None, place)) <= CURSOR_MAX


@pytest.mark.spec("HTTP-1")
def test_the_docs_pages_are_made_once(kit, monkeypatch):
    """They need no key, so a request for them must cost next to nothing."""
    pages = [kit.ask("GET", path).text for path in ("/docs", "/docs/problems")]

    def again(root):
        raise AssertionError(root)

    monkeypatch.setattr(docs, "operations_html", again)
    monkeypatch.setattr(docs, "problems_html", again)
    assert [kit.ask("GET", path).text for path in ("/docs", "/docs/problems")] == pages
