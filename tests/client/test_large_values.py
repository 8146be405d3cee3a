"""Large values in bodies: they are read in a thread, and recorded as small ones are."""

from __future__ import annotations

import gc
import threading

import pytest

import holdfast as hf
from holdfast.http.parsing import LARGE_BYTES
from holdfast.threads.collector import paused
from tests.client.kit import Serving

PADDING = "a" * (LARGE_BYTES + 1)
DEPTH_LEFT = 63  # levels of a value inside a list


def nested(levels):
    value = {}
    for _ in range(levels - 1):
        value = {"k": value}
    return value


@pytest.mark.spec("START-4", "START-9")
async def test_small_values_beside_a_large_one_are_recorded_as_they_are_alone():
    """One call starts them all; a value that is left out stays left out."""
    with Serving() as server:
        async with server.client() as client:
            alone = await client.start("shop.report.v1", key="k")
            many = await client.start_many(
                [
                    ("shop.order.v1", {"id": 1, "text": PADDING}),
                    ("shop.report.v1", None, {"key": "k"}),
                    ("shop.report.v1", None),
                ]
            )
            assert not any(isinstance(one, hf.HoldfastError) for one in many), many
            assert (many[1].id, many[1].created) == (alone.id, False)
            large, _, other = [await client.known(one.id) for one in many]
            assert large.params == {"id": 1, "text": PADDING}
            assert other.params == (await client.known(alone.id)).params


@pytest.mark.spec("START-9", "HTTP-4")
@pytest.mark.parametrize("padding", ["", PADDING], ids=["small", "large"])
async def test_what_a_value_may_hold_does_not_depend_on_its_size(padding):
    with Serving() as server:
        async with server.client() as client:
            value = [nested(DEPTH_LEFT), 2**70, 1e16, -0.0, padding]
            run = await client.start("free.form.v1", value)
            assert repr((await client.known(run.id)).params) == repr(value)
            for bad in ({"\0": padding}, [nested(DEPTH_LEFT + 1), padding], {"a": "\0" + padding}):
                with pytest.raises(hf.UsageError):
                    await client.start("free.form.v1", bad)


def test_the_collector_goes_on_when_the_last_pause_ends():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with paused():
            inside.set()
            assert leave.wait(10)

    assert gc.isenabled()
    thread = threading.Thread(target=other)
    with paused():
        assert not gc.isenabled()
        thread.start()
        assert inside.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join(10)
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
