"""Words of the pages: right for one thing and for many, and only about what is there."""

from __future__ import annotations

import re
from html import unescape

import pytest

from holdfast.records import Scope


def words(text):
    """Return the words of a page, without its tags."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", text)).split())


def test_one_failed_run_is_one_run(visit):
    for number, said in ((1, "Of the last 1 failed run."), (2, "Of the last 2 failed runs.")):
        visit.kit.work(visit.kit.run(visit.kit.app.start, "shop.broken.v1").id)
        assert said in words(visit.text("/")), number


def test_failures_of_the_last_hour_lead_to_these_runs(visit):
    visit.kit.work(visit.kit.run(visit.kit.app.start, "shop.broken.v1").id)
    text = visit.text("/workflows")
    (link,) = re.findall(r'href="/ui(/runs[^"]*status=failed[^"]*)"', text)
    assert "finished_since=1h" in link
    assert str(visit.kit.run(visit.kit.app.list)[0].id) in visit.text(unescape(link))


def test_a_topic_waits_since_its_first_run_waits(visit):
    kit = visit.kit
    runs = []
    for _ in range(2):
        runs.append(kit.run(kit.app.start, "shop.order.v1", {"id": 7}).id)
        kit.work(*runs)
    first = kit.run(kit.app.known, runs[0]).waiting_on[0].started_at
    text = visit.text("/events?topic=paid:7")
    since = re.search(r'data-label="Since"><time datetime="([^"]+)"', text)[1]
    assert since == kit.ask("GET", f"/runs/{runs[0]}").json()["waiting_on"][0]["since"]
    assert first


def test_the_rules_of_a_schedule_are_sentences(visit):
    said = {"overlap": ("queue", "the time waits until the run has ended (queue)"),
            "catch_up": ("all", "all are caught up (all)")}  # fmt: skip
    options = {name: word for name, (word, _) in said.items()}
    visit.kit.run(visit.kit.app.schedule, "nightly", "shop.report.v1", every=3600, **options)
    text = words(visit.text("/schedules/nightly"))
    for _, sentence in said.values():
        assert sentence in text


def test_a_run_without_steps_names_no_table(visit):
    run = visit.kit.run(visit.kit.app.start, "shop.report.v1", delay=60).id
    text = visit.text(f"/runs/{run}")
    assert "No step is recorded yet." in text
    assert "The table has the same" not in text


@pytest.mark.spec("TEN-3")
def test_who_may_not_decide_gets_no_command_that_decides(keyed_visit):
    kit = keyed_visit.kit
    kit.work(kit.run(kit.app.start, "shop.gated.v1").id)
    keyed_visit.sign_in(Scope.RUNS_READ)
    text = keyed_visit.text("/approvals")
    assert "Gate manager (its question is hidden)" in words(text)
    assert "holdfast approve " not in text
    keyed_visit.sign_in(Scope.RUNS_READ, Scope.APPROVALS_DECIDE)
    assert "holdfast approve " in keyed_visit.text("/approvals")


def test_steps_to_come_hide_no_outcome(keyed_visit):
    kit = keyed_visit.kit
    run = kit.run(kit.app.start, "shop.plan.v1").id
    keyed_visit.sign_in(Scope.RUNS_READ)
    text = words(keyed_visit.text(f"/runs/{run}"))
    assert re.search(r"SHIP task to come - - (?!hidden)", text)
