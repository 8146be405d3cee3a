"""`holdfast serve` and signals: the server stops first, and a second signal does not wait for steps."""

from __future__ import annotations

import signal
import time
import urllib.error
import urllib.request

import pytest

from tests.docs import shell

SLOW = """
import asyncio
import pathlib

import holdfast as hf

app = hf.App()


async def wait() -> None:
    pathlib.Path("began").touch()
    await asyncio.sleep(60)


@app.workflow("shop.slow.v1")
async def slow(ctx: hf.Context) -> None:
    await ctx.step("wait", wait)
"""
BODY = b'{"type": "shop.slow.v1"}'


@pytest.mark.slow
@pytest.mark.spec("HTTP-1")
def test_the_server_stops_first_and_a_second_signal_ends_the_grace_period(tmp_path):
    (tmp_path / "shop.py").write_text(SLOW, "utf-8")
    with shell.server(tmp_path, "shop:app", "--worker") as (process, port):
        address = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(f"{address}/runs", BODY, {"content-type": "application/json"})
        assert urllib.request.urlopen(request).status == 201
        _until((tmp_path / "began").exists)

        process.send_signal(signal.SIGTERM)
        _until(lambda: not _answers(address))
        assert process.poll() is None, "the step has its grace period"

        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def _answers(address):
    try:
        return urllib.request.urlopen(f"{address}/readyz", timeout=5).status == 200
    except urllib.error.HTTPError as error:
        return error.code == 200
    except OSError:
        return False


def _until(holds):
    """Wait in real time, because a real process has no clock that a test can turn."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
