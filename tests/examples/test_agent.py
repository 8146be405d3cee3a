"""The agent: thirty turns through kill -9, a budget, an approval, and a cancel from outside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.examples.processes import Processes, store_url
from tests.laws.effort import longer

AGENT = "support.agent.v1"
TURNS = 30


@pytest.fixture(params=["sqlite", *longer("redis")])
def agent(request, tmp_path) -> Iterator[Processes]:
    processes = Processes("agent", tmp_path, store_url(request, tmp_path), AGENT_PACE="0.05")
    yield processes
    processes.stop()


def calls(agent, run):
    """Return how often each turn of a run called the model."""
    rows = [json.loads(line) for line in (agent.folder / "calls.jsonl").read_text().splitlines()]
    return Counter(row["turn"] for row in rows if row["run"] == run)


def run_of(agent, run):
    return agent.cli("show", run)


@pytest.mark.slow
def test_thirty_turns_survive_kills_and_pay_for_no_recorded_answer_again(agent):
    run = agent.cli("start", AGENT, '"owls"')["id"]
    for killed_at in (5, 15):
        worker = agent.worker("agent:app", "--lease", "1s")
        agent.until(lambda at=killed_at: calls_so_far(agent) >= at)
        agent.kill(worker)
    agent.worker("agent:app", "--lease", "1s")
    agent.until(lambda: agent.cli("approvals"))
    agent.cli("approve", run, "--by", "ada")
    agent.until(lambda: run_of(agent, run)["status"] == "succeeded")

    assert run_of(agent, run)["result"] == f"owls: {TURNS - 1} sources read"
    made = calls(agent, run)
    assert set(made) == set(range(1, TURNS + 1))
    assert sum(made.values()) <= TURNS + 2, "only the calls that a kill cut off are made again"


def calls_so_far(agent):
    file = agent.folder / "calls.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.mark.slow
def test_a_budget_pauses_before_the_call_that_could_exceed_it_and_goes_on_with_more(agent):
    run = agent.cli("start", AGENT, '"owls"', "--budget", "0.11")["id"]
    agent.worker("agent:app")
    agent.until(lambda: run_of(agent, run)["status"] == "paused")
    assert run_of(agent, run)["cost"] == pytest.approx(0.10)
    assert "budget" in json.dumps(agent.cli("explain", run))

    agent.cli("resume", run, "--budget", "5")
    agent.until(lambda: agent.cli("approvals"))
    assert run_of(agent, run)["cost"] == pytest.approx(0.60)


@pytest.mark.slow
def test_a_cancel_from_outside_ends_the_call_of_the_model_at_once(agent):
    agent.env["AGENT_PACE"] = "30"
    run = agent.cli("start", AGENT, '"owls"')["id"]
    worker = agent.worker("agent:app")
    agent.until(lambda: calls_so_far(agent) == 1)
    agent.cli("cancel", run)
    assert run_of(agent, run)["status"] == "cancelled"
    agent.until(lambda: "cancelled" in agent.log, 5.0)
    worker.terminate()
    assert worker.wait(10) == 0, "no call of the model holds up the stop"
