"""The demo: what it claims is checked, a lie is found out, and it leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from holdfast.cli.demo import command
from holdfast.cli.demo.checks import checks
from holdfast.cli.demo.scenario import Scenario
from tests.cli.conftest import eventually


@pytest.fixture
def signals():
    """The demo takes over two signals; here it runs in the test's own process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def scenarios(monkeypatch):
    made = []

    def remembered(folder):
        made.append(Scenario(folder))
        return made[-1]

    monkeypatch.setattr(command, "Scenario", remembered)
    return made


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def forge(scenario, **line):
    """A line in the ledger that did not happen."""
    with scenario.ledger.path.open("a") as ledger:
        ledger.write(
            json.dumps({"run": str(scenario.run_id), "attempt": 9, "at": time.time(), **line}) + "\n"
        )


@pytest.mark.slow
@pytest.mark.spec("CLI-1", "LEASE-6")
def test_the_demo_shows_that_no_recorded_step_ran_again(cli_, signals, scenarios, tmp_path):
    """It ends by itself, its claims are checked, and what it tells to type works."""
    began = time.monotonic()
    found = cli_("demo", "--keep", tmp_path / "kept", store=False)
    took = time.monotonic() - began
    scenario = scenarios[0]

    assert found.exit_code == 0, found.output
    assert took < 20
    assert all(claim.true for claim in checks(scenario))
    assert "kill -9" in found.stdout
    assert not any(alive(worker.pid) for worker in scenario.workers)
    output = found.stdout.partition("Try next")[0]
    assert max(len(line) for line in output.splitlines() if ".py" not in line) <= 80

    cli_.url = scenario.url
    assert "succeeded" in cli_("show", str(scenario.run_id)[-8:]).stdout
    assert "lease expired" in cli_("trail", str(scenario.run_id)[-8:]).stdout
    assert "earlier demo" in cli_.refused("demo", "--keep", tmp_path / "kept", store=False, code=2)

    # A step that ran again after its record, or one time too often, is found out.
    forge(scenario, step="reserve", pid=scenario.workers[1].pid)
    lies = [claim.text for claim in checks(scenario) if not claim.true]
    assert any("no recorded step ran again" in text for text in lies)
    assert any("ran once" in text for text in lies)
    scenario.trail = [entry for entry in scenario.trail if entry.type != "lease_expired"]
    assert any("lease expired" in claim.text for claim in checks(scenario) if not claim.true)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_no_process_behind(process, tmp_path, number):
    one = process("demo", env={**os.environ, "TMPDIR": str(tmp_path)})
    worker = 0
    for line in one.stdout:
        if "start worker 1" in line:
            worker = int(line.split()[-1])
        if "claims the run" in line:
            break
    one.send_signal(number)
    _, err = one.communicate(timeout=15)
    assert one.returncode == 130
    assert "Traceback" not in err
    assert eventually(lambda: not alive(worker))
    assert list(tmp_path.glob("holdfast-demo-*")) == []


@pytest.mark.slow
def test_a_demo_whose_worker_cannot_start_says_why(process, tmp_path):
    """Exit 0 only if all that it claims is true."""
    broken = tmp_path / "holdfast_sitecustomize"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import sys\nif 'worker' in sys.argv: raise SystemExit('no worker today')\n"
    )
    one = process("demo", "--keep", tmp_path / "kept", env={**os.environ, "PYTHONPATH": str(broken)})
    _, err = one.communicate(timeout=30)
    assert one.returncode == 1
    assert "FAILED: worker 1 ended" in err
