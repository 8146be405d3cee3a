"""The Go client in the conformance kit: right in every case, and three mistakes that the kit must find."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.clients import kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.spec("HTTP-3")]

BROKEN = {
    "no-fence": ("hello", "no-fence", "the worker writes without fence"),
    "drops-result": ("lost-checkpoint", "dropped-result", "the worker drops a result"),
    "work-thread": ("blocked-thread", "heartbeat-blocked", "the worker sends heartbeats from the work"),
}


def judged(*arguments):
    """Return the outcomes of the kit by case."""
    argv = [sys.executable, "-m", "holdfast.cli", "conformance", "--json", *map(str, arguments)]
    done = subprocess.run(argv, env=kit.environment(), capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return {one["case"]: one for one in json.loads(done.stdout)["cases"]}


def test_the_client_conforms(go):
    # A longer lease: this machine may be busy with other tests.
    outcomes = judged("--jobs", 3, "--lease-ms", 2000, "--limit", 60, "--", go.build("conformance"))
    assert {case: one["says"] for case, one in outcomes.items() if one["verdict"] != "passed"} == {}
    assert len(outcomes) > 40


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_worker_is_found(go, mistake):
    case, name, sentence = BROKEN[mistake]
    found = judged("--only", case, "--", go.build("conformance/broken"), mistake)[case]
    assert (found["verdict"], found["mistake"]) == ("failed", name)
    assert found["says"].startswith(sentence)
