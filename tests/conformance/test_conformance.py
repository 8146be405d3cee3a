"""The conformance kit on a worker that is right, and on workers that have one mistake each."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast.conformance.case import CASES
from holdfast.conformance.ledger import FAIL
from holdfast.conformance.mistakes import MISTAKES
from holdfast.conformance.running import Verdict, run_cases
from holdfast.conformance.stage import Options, Stage
from tests.conformance.app import app
from tests.laws.effort import longer, only_long

HERE = Path(__file__).parent
PLAIN = (sys.executable, str(HERE / "plain"))

# Each mistake of the plain worker: the case that shows it, its name, and words of its sentence.
BROKEN = {
    "no-fence": ("hello", "no-fence", "the worker writes without fence"),
    "no-token": ("hello", "no-token", "the worker writes without token"),
    "drops-result": ("lost-checkpoint", "dropped-result", "drops a result after a lost answer"),
    "work-thread": ("blocked-thread", "heartbeat-blocked", "sends heartbeats from the work thread"),
    "no-heartbeat": ("blocked-thread", "no-heartbeat", "no heartbeat came at all"),
    "long-lease": ("hello", "wrong-lease-time", "asks for another lease time"),
    "no-register": ("hello", "no-register", "claims without having registered"),
    "seq-from-zero": ("hello", "wrong-seq", "where 1 is next"),
    "same-seq": ("step-order", "changed-item", "another item under a `seq`"),
    "next-seq": ("lost-checkpoint", "dropped-result", "came in place of"),
    "rounds-numbers": ("values", "changed-value", "integers"),
    "strict-fields": ("unknown-fields", "unknown-fields", "ignore unknown fields"),
    "eager": ("refused-503", "too-eager", "the answer asked for 200 ms"),
    "trusts-proxies": ("proxy-page", "dropped-result", "answered by a proxy"),
    "ignores-401": ("wrong-key", "ignores-401", "it still runs"),
    "ignores-sigterm": ("stop", "not-graceful", "after SIGTERM"),
    "no-release": ("stop", "not-graceful", "still holds a run"),
    "batch-as-one": ("stale-item", "batch-as-one", "one refused item"),
    "ignores-lost": ("stale-fence", "works-without-lease", "after `lease-lost`"),
    "ignores-pause": ("pause", "pause-ignored", "after `paused`"),
    "ignores-cancel": ("cancel", "cancel-ignored", "a heartbeat had said `cancelled`"),
    "wall-clock": ("clock", "wrong-clock", "`started_ms` is"),
    "mangles-names": ("odd-name", "odd-name", "under another name than its own (step a ran twice"),
    "hoards": ("slots", "hoards", "it holds 6 runs, and HOLDFAST_SLOTS is 4"),
    "time-back": ("now", "time-back", "of its second lease is 3600 s before"),
    "early-clock": ("slow-claim", "time-ahead", "counts the time of a run from before its claim"),
    "sleeps-until": ("clock", "wrong-clock", "a sleep of 150 ms"),
    "counts-from-zero": ("step-keys", "wrong-step-key", "missing: a#3"),
    "bare-idempotency-key": ("hello", "wrong-idempotency-key", "than RUN:KEY (step a was given"),
    "repeats-steps": ("sleep", "step-repeated", "step a ran twice"),
    "records-later": ("step-order", "step-unrecorded", "step b began before step a was recorded"),
    "retries-fatal": ("fatal-failure", "fatal-retried", "step a ran twice"),
    "retries-for-ever": ("body-failure", "body-error", "`retry` came a second time"),
    "keeps-waiting": ("event", "wait-held", "no `park` came"),
    "ignores-settled": ("already-there", "already-there", "in `settled`"),
    "one-page": ("large-record", "not-loaded", "step s1 ran twice"),
    "ends-at-503": ("refused-claims", "ended", "with code 4"),
}


# These show another side of a mistake that is in the list twice, or need seconds of waiting.
ONLY_LONG = {
    "no-token", "no-heartbeat", "long-lease", "no-register", "seq-from-zero", "next-seq", "strict-fields",
    "ignores-401", "ignores-sigterm", "sleeps-until", "bare-idempotency-key", "retries-for-ever",
    "keeps-waiting", "ignores-settled", "one-page", "ends-at-503",
}  # fmt: skip


def judged(*cases: str, broken: str = "", seconds: float = 20.0):
    """Run cases on the plain worker; return the outcomes by case."""
    command = (*PLAIN, "--broken", broken) if broken else PLAIN
    options = Options(command=command, case_seconds=seconds)
    outcomes = asyncio.run(run_cases(options, cases or list(CASES), lambda _outcome: None))
    return {one.case: one for one in outcomes}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("HTTP-3")
def test_the_python_library_passes_every_case():
    """A worker of the library with the address of a server as its store is right in every case."""
    # A longer lease: this machine may be busy with other tests.
    options = Options(command=(sys.executable, str(HERE / "app.py")), lease_ms=2000, case_seconds=60.0)
    outcomes = asyncio.run(run_cases(options, list(CASES), lambda _outcome: None, jobs=3))
    assert {one.case: one.says for one in outcomes if one.verdict is not Verdict.PASSED} == {}
    assert [one.case for one in outcomes] == list(CASES)


@only_long
@pytest.mark.timeout(120)
@pytest.mark.spec("HTTP-3")
def test_a_right_worker_passes_every_case():
    """A worker written from the page of the protocol alone passes every case, well within a minute."""
    outcomes = judged()
    assert {one.case: one.says for one in outcomes.values() if one.verdict is not Verdict.PASSED} == {}
    assert list(outcomes) == list(CASES)
    assert sum(one.seconds for one in outcomes.values()) < 60


@pytest.mark.slow
@pytest.mark.spec("HTTP-3")
@pytest.mark.parametrize(
    "broken", [one for one in BROKEN if one not in ONLY_LONG] + longer(*sorted(ONLY_LONG))
)
def test_a_mistake_is_named(broken):
    """A worker with one mistake fails the case that shows it, with a sentence that names the mistake."""
    case, mistake, words = BROKEN[broken]
    outcome = judged(case, broken=broken, seconds=8.0)[case]
    assert (outcome.verdict, outcome.mistake) == (Verdict.FAILED, mistake), outcome.says
    assert words in outcome.says
    assert outcome.see == f"docs/worker-protocol.md#{MISTAKES[mistake].section}"


def test_a_worker_that_fails_the_first_case_is_not_judged_further():
    """When the simplest run fails, the other cases are not run, and that takes no time."""
    outcomes = judged("hello", "values", broken="no-fence")
    assert [one.verdict for one in outcomes.values()] == [Verdict.FAILED, Verdict.NOT_RUN]


def test_a_program_that_ends_at_once_is_a_clear_verdict():
    """A program that ends before its first claim is named, with its exit code and its last words."""
    options = Options(command=(sys.executable, "-c", "import sys; sys.exit('no such module: worker')"))
    (outcome,) = asyncio.run(run_cases(options, ["hello"], lambda _outcome: None))
    assert outcome.mistake == "not-started"
    assert "it ended with code 1: no such module: worker" in outcome.says


def test_every_case_and_every_mistake_has_its_place_in_the_docs():
    """The page of the kit lists every case, and the sections that mistakes point to exist."""
    root = HERE.parent.parent / "docs"
    page = (root / "conformance.md").read_text()
    assert [one for one in CASES.values() if f"| `{one.name}` | {one.title} |" not in page] == []
    protocol = (root / "worker-protocol.md").read_text()
    headings = {
        line.lstrip("# ").lower().replace(",", "").replace(" ", "-")
        for line in protocol.splitlines()
        if line.startswith("#")
    }
    assert {one.section for one in MISTAKES.values()} - headings == set()


def test_every_mistake_is_used():
    """Each mistake of the table is raised somewhere."""
    folder = Path(sys.modules["holdfast.conformance"].__file__).parent
    code = "".join(one.read_text() for one in folder.rglob("*.py") if one.name != "mistakes.py")
    assert [name for name in MISTAKES if f'"{name}"' not in code] == []


@pytest.mark.slow
def test_the_python_program_executes_every_instruction():
    """The program of the Python library, here on the store itself, executes the scripts of the cases."""

    async def played():
        async with Stage(Options(command=PLAIN)) as stage:
            stage.api.begin()
            app.store = stage.client.store
            ledger = stage.ledger()
            ledger.answer("f", FAIL, FAIL)
            async with app.worker(slots=4):
                script = await stage.start(
                    {"step": "a", "value": {"big": 2**60 + 1}},
                    {"step": "f", "attempts": 2, "delay_ms": 1, "or": "caught"},
                    {"step": "l", "bytes": 1000},
                    {"sleep": 1},
                    {"event": "py:1"},
                    {"event": "py:2", "timeout_ms": 1},
                    {"child": {"ledger": ledger.url, "do": [{"step": "c", "key": "mine", "value": 3}]}},
                    ledger=ledger,
                )
                await stage.client.emit("py:1", "came")
                run = await stage.ended(script)
        return run.result, [(call.step, call.key.partition(":")[2]) for call in ledger.calls]

    result, calls = asyncio.run(played())
    assert result == [{"big": 2**60 + 1}, "caught", 998, "slept", "came", "timeout", [3]]
    assert calls == [("a", "a"), ("f", "f"), ("f", "f"), ("l", "l"), ("c", "mine")]
