"""The recorder counts each happening once, from any thread, whenever it is read."""

from __future__ import annotations

import threading

from holdfast.telemetry import catalog
from holdfast.telemetry.recorder import FRESH_MAX, Distribution, Recorder

THREADS, EACH = 4, 20 * FRESH_MAX + 7


def values(recorder, metric):
    return next(one.values for one in recorder.families() if one.metric is metric)


def test_nothing_is_lost_between_threads_and_reads():
    recorder, over = Recorder(), threading.Event()

    def work():
        for n in range(EACH):
            recorder.tried("a.v1", "succeeded", n % 7)
            recorder.executed("a.v1", "lost" if n % 2 else "succeeded")

    def read():
        while not over.is_set():
            recorder.families()

    workers, reader = [threading.Thread(target=work) for _ in range(THREADS)], threading.Thread(target=read)
    for one in (reader, *workers):
        one.start()
    for one in workers:
        one.join()
    over.set()
    reader.join()
    steps = values(recorder, catalog.STEP_DURATION)["a.v1", "succeeded"]
    assert sum(steps.counts) == THREADS * EACH
    assert steps.total == THREADS * sum(n % 7 for n in range(EACH))
    lost = THREADS * (EACH // 2)
    assert values(recorder, catalog.EXECUTIONS) == {
        ("a.v1", "lost"): lost,
        ("a.v1", "succeeded"): THREADS * EACH - lost,
    }
    assert values(recorder, catalog.LEASES_LOST) == {("a.v1",): lost}


def test_a_value_on_a_bound_is_below_it_and_a_negative_one_is_zero():
    recorder, bounds = Recorder(), catalog.CLAIM_LATENCY.buckets
    for value in (-1.0, bounds[0], bounds[1], bounds[-1], bounds[-1] + 1):
        recorder.claimed("a.v1", value)
    counts = [0] * (len(bounds) + 1)
    for place in (0, 0, 1, -2, -1):
        counts[place] += 1
    total = bounds[0] + bounds[1] + bounds[-1] + bounds[-1] + 1
    assert values(recorder, catalog.CLAIM_LATENCY) == {("a.v1",): Distribution(counts, total)}
    assert values(recorder, catalog.CLAIM_LATENCY) == {("a.v1",): Distribution(counts, total)}  # read again
