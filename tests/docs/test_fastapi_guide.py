"""The FastAPI guide: its web process starts runs, and a worker in a second process executes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.docs import pages

PAGE = pages.ROOT / "docs" / "guide" / "fastapi.md"
WEB = """
import time

from fastapi.testclient import TestClient
from web import web


def ended(client, run):
    end = time.monotonic() + 30
    while (found := client.get(f"/orders/{run}").json())["status"] != "succeeded":
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found["result"]


with TestClient(web) as client:
    small = client.post("/orders", json={"number": 1, "cents": 950}, headers={"Idempotency-Key": "1"})
    print(ended(client, small.json()["run"]))

    large = client.post("/orders", json={"number": 2, "cents": 200_000}, headers={"Idempotency-Key": "2"})
    run = large.json()["run"]
    while client.get(f"/orders/{run}").json()["waits_for"] != ["large-order"]:
        time.sleep(0.05)
    for _ in range(2):  # a second click changes nothing
        decided = client.post(f"/orders/{run}/approval", params={"approve": False}, headers={"X-User": "ada"})
        print(decided.json())
    other = client.post(f"/orders/{run}/approval", params={"approve": True}, headers={"X-User": "bob"})
    print(other.status_code, ended(client, run))
"""


@pytest.mark.slow
def test_a_worker_in_a_second_process_executes_runs_of_the_web_process(tmp_path):
    """The test waits in real time, because real processes have no clock that a test can turn."""
    (line,) = [line for line in pages.commands(PAGE) if line.startswith("holdfast worker ")]
    for block in pages.python(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text, "utf-8")
    env = {key: value for key, value in os.environ.items() if key != "HOLDFAST_STORE"}
    env |= {"PYTHONPATH": f"{pages.ROOT / 'src'}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *line.split()[1:]],
        cwd=tmp_path,
        env=env,
        stderr=subprocess.DEVNULL,
    )
    try:
        argv = [sys.executable, "-W", "error", "-c", WEB]
        web = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    finally:
        worker.send_signal(signal.SIGTERM)
        ended = worker.wait(20)

    assert web.returncode == 0, web.stderr
    assert web.stdout.splitlines() == [
        "receipt for 950 cents",
        "{'approved': False, 'by': 'ada', 'repeated': False}",
        "{'approved': False, 'by': 'ada', 'repeated': True}",
        "409 refused by ada",
    ]
    assert ended == 0
