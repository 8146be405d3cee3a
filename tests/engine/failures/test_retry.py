"""Retries: their number, delays, policies, and records."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Backoff, RetryAfter, Status
from tests.engine.kit import outcome, process, trail, until


class Failing:
    """A function that fails a number of times, then succeeds, and notes the times of its calls."""

    def __init__(self, world, failures=10**6, error=None):
        self.world, self.failures, self.error = world, failures, error or ValueError("no")
        self.at = []

    def __call__(self, *_):
        self.at.append(self.world.monotonic())
        if len(self.at) <= self.failures:
            raise self.error
        return "at last"

    @property
    def gaps(self):
        return [later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)]


@pytest.fixture
def failing(world):
    return Failing(world)


@pytest.mark.spec("RETRY-1", "RETRY-7")
@pytest.mark.parametrize("delay", [0, 0.5, 30])
@pytest.mark.parametrize("place", ["body", "step"])
async def test_exactly_max_attempts_executions_end_in_failure(app, failing, delay, place):
    """The count is the same in place or by the queue, in the body or in a step."""

    @app.workflow("shop.order.v1", retry=Backoff.fixed(delay, attempts=4))
    async def order(ctx):
        await ctx.step("bad", failing) if place == "step" else failing()

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "exhausted")
        await asyncio.sleep(100)
    assert len(failing.at) == 4


@pytest.mark.spec("RETRY-1", "START-1")
async def test_max_attempts_of_the_start_wins_over_the_workflows(app, failing):
    @app.workflow("shop.order.v1", retry=Backoff.fixed(0, attempts=4))
    async def order(ctx):
        failing()

    async with app.worker():
        assert await outcome(app, await app.start(order, max_attempts=2)) == ("failed", "exhausted")
    assert len(failing.at) == 2


@pytest.mark.spec("RETRY-7")
async def test_one_attempt_that_fails_is_exhausted_too(app, failing):
    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx):
        failing()

    async with app.worker():
        assert await outcome(app, await app.start(order)) == ("failed", "exhausted")


@pytest.mark.spec("RETRY-1")
@pytest.mark.parametrize("place", ["body", "step"])
async def test_a_restart_forgets_no_attempt(app, failing, place):
    @app.workflow("shop.order.v1", retry=Backoff.fixed(60, attempts=3))
    async def order(ctx):
        await ctx.step("bad", failing) if place == "step" else failing()

    run = await app.start(order)
    for executions in (1, 2, 3):
        async with app.worker():
            await asyncio.sleep(30)
        assert len(failing.at) == executions
        await asyncio.sleep(60)
    assert await outcome(app, run) == ("failed", "exhausted")


@pytest.mark.spec("RETRY-1")
async def test_progress_starts_the_counts_anew(app):
    tries = {"a": 0, "b": 0}

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0, attempts=2))
    async def order(ctx):
        for name in "ab":
            tries[name] += 1
            if tries[name] == 1:
                raise ValueError(name)
            await ctx.step(name, lambda: 1)
        return "done"

    async with app.worker():
        assert await (await app.start(order)).result(60) == "done"


@pytest.mark.spec("RETRY-1")
async def test_parking_and_graceful_release_use_up_no_attempt(app):
    seen = []

    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx):
        seen.append(ctx.attempt)
        await ctx.sleep(10)
        await asyncio.sleep(5)
        return "done"

    run = await app.start(order)
    async with app.worker(grace=1):
        await until(app, run, Status.WAITING)
        await until(app, run, Status.LEASED)
        await asyncio.sleep(1)
        await app.pause(run.id)
    async with app.worker(grace=1):
        await app.resume(run.id)
        await asyncio.sleep(1)
    async with app.worker():
        assert await run.result(60) == "done"
    assert set(seen) == {1}


@pytest.mark.spec("RETRY-2", "RETRY-5")
@pytest.mark.parametrize(
    ("policy", "gaps"),
    [
        (Backoff.exponential(2, attempts=4, jitter=0), [4, 8, 16]),
        (Backoff.quadratic(attempts=4, jitter=0), [60, 240, 540]),
        (Backoff.linear(5, attempts=4, jitter=0), [5, 10, 15]),
        (Backoff.fixed(7, attempts=4), [7, 7, 7]),
        (Backoff.of([1, 20, 3]), [1, 20, 3]),
        (Backoff.of(lambda n: 10 * n, attempts=4), [10, 20, 30]),
    ],
    ids=lambda value: getattr(value, "shape", ""),
)
@pytest.mark.parametrize("place", ["body", "step"])
async def test_a_policy_gives_the_delays(app, failing, policy, gaps, place):
    @app.workflow("shop.order.v1", retry=policy)
    async def order(ctx):
        await ctx.step("bad", failing) if place == "step" else failing()

    async with app.worker():
        assert (await outcome(app, await app.start(order)))[1] == "exhausted"
    assert [pytest.approx(gap, abs=0.05) for gap in gaps] == failing.gaps


@pytest.mark.spec("RETRY-2")
async def test_the_default_is_exponential_from_one_second_three_attempts_with_jitter_that_only_adds(
    app, failing
):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        failing()

    async with app.worker():
        assert (await outcome(app, await app.start(order)))[1] == "exhausted"
    first, second = failing.gaps
    assert 2 <= first <= 2.25
    assert 4 <= second <= 4.45


@pytest.mark.spec("RETRY-3")
async def test_the_nearest_policy_wins(app, world):
    of_body, of_step, after = Failing(world, 1), Failing(world, 1), Failing(world, 1, RetryAfter(3))

    @app.workflow("shop.order.v1", retry=Backoff.fixed(20))
    async def order(ctx):
        await ctx.step("inherits", of_body)
        await ctx.step("own", of_step, retry=Backoff.fixed(7))
        await ctx.step("asks", after, retry=Backoff.fixed(7))

    async with app.worker():
        await (await app.start(order)).result(200)
    assert [one.gaps[0] for one in (of_body, of_step, after)] == [
        pytest.approx(20, abs=0.05), pytest.approx(7, abs=0.05), pytest.approx(3, abs=0.05),
    ]  # fmt: skip


@pytest.mark.spec("RETRY-3")
async def test_retry_after_out_of_the_body_says_when(app, world):
    failing = Failing(world, 1, RetryAfter(33))

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return failing()

    async with app.worker():
        assert await (await app.start(order)).result(60) == "at last"
    assert failing.gaps == [pytest.approx(33, abs=0.05)]


@pytest.mark.spec("RETRY-5")
@pytest.mark.parametrize("place", ["body", "step"])
async def test_a_backoff_above_one_second_frees_the_slot(app, failing, place):
    @app.workflow("shop.bad.v1", retry=Backoff.fixed(60))
    async def bad(ctx):
        await ctx.step("bad", failing) if place == "step" else failing()

    @app.workflow("shop.good.v1")
    async def good(ctx):
        return "fine"

    async with app.worker(slots=1) as worker:
        run = await app.start(bad)
        await asyncio.sleep(5)
        found = await app.get(run.id)
        assert (found.status, found.leased_by, worker.busy) == (Status.PENDING, None, 0)
        assert "no" in found.last_error
        assert found.error.type == "ValueError"
        assert await (await app.start(good)).result(5) == "fine"


@pytest.mark.spec("RETRY-5")
@pytest.mark.parametrize("place", ["body", "step"])
async def test_a_retry_within_a_second_keeps_the_run(app, world, place):
    failing = Failing(world, 2)

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0.9))
    async def order(ctx):
        return await ctx.step("bad", failing) if place == "step" else failing()

    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == "at last"
    assert (await trail(app, run)).count("leased") == 1
    assert (await trail(app, run)).count("retried") == 2


@pytest.mark.spec("RETRY-6", "RETRY-7")
async def test_a_step_past_its_timeout_is_cancelled_and_fails_with_kind_timeout(app):
    told = []

    async def slow():
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("slow", slow, timeout=5, retry=Backoff.fixed(0, attempts=2))

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run, 60) == ("failed", "timeout")
    found = (await app.get(run.id)).error
    assert told == ["cancelled", "cancelled"]
    assert found.step == "slow"
    assert "5 s" in found.message


@pytest.mark.spec("RETRY-7")
async def test_a_timeout_error_of_the_users_own_is_no_timeout_of_the_step(app):
    def dial():
        raise TimeoutError("the bank did not answer")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("dial", dial, retry=Backoff.none(), timeout=60)

    async with app.worker():
        assert await outcome(app, await app.start(order), 60) == ("failed", "exhausted")


@pytest.mark.spec("RETRY-8", "LEASE-6")
async def test_a_crash_uses_up_no_attempt_and_needs_no_user_code_to_be_counted(app):
    attempts = []

    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx):
        attempts.append(ctx.attempt)
        await asyncio.sleep(5)
        return "done"

    run = await app.start(order)
    doomed = await process(app, 1)
    await asyncio.sleep(1)
    doomed.kill()
    async with app.worker():
        assert await run.result(60) == "done"
    assert len(attempts) == 2
    expired = [entry for entry in await app.trail(run.id) if entry.type == "lease_expired"]
    assert [entry.data["crashes"] for entry in expired] == [1]


@pytest.mark.spec("RETRY-1", "RETRY-8")
async def test_after_a_crash_there_are_still_all_attempts(app, failing):
    crash = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0, attempts=3))
    async def order(ctx):
        if not crash:
            crash.append(1)
            await asyncio.sleep(1000)
        failing()

    run = await app.start(order)
    doomed = await process(app, 1)
    await asyncio.sleep(1)
    doomed.kill()
    async with app.worker():
        assert await outcome(app, run) == ("failed", "exhausted")
    assert len(failing.at) == 3


@pytest.mark.spec("RETRY-9", "RETRY-7")
@pytest.mark.parametrize("state", ["waiting", "running", "pending"])
async def test_a_run_past_its_own_timeout_fails_whatever_it_does(app, state):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await (ctx.sleep(1000) if state == "waiting" else ctx.step("long", asyncio.sleep, 1000))

    async with app.worker(slots=1) as worker:
        blocker = await app.start(order) if state == "pending" else None
        await asyncio.sleep(1)
        run = await app.start(order, timeout=60)
        assert await outcome(app, run, 75) == ("failed", "timeout")
        await asyncio.sleep(15)
        assert worker.busy == (blocker is not None)
    assert (await trail(app, run))[-2:] == ["timed_out", "failed"]


@pytest.mark.spec("RETRY-9")
async def test_a_run_past_its_timeout_begins_no_further_step_even_without_a_keeper(app):
    called = []

    @app.workflow("shop.order.v1", timeout=5)
    async def order(ctx):
        for n in range(100):
            called.append(n)
            await ctx.step("nap", asyncio.sleep, 2)

    async with app.worker(keeper=False):
        run = await app.start(order)
        assert await outcome(app, run, 30) == ("failed", "timeout")
    assert len(called) <= 4
