"""A chain with events, a pause and a parent, run with a crash at every store call."""

from __future__ import annotations

from holdfast import App, Status
from holdfast.testing import explore


def loops(count):
    """A parent waits for a chain. Each run of the chain takes one event, and one run is paused."""
    app = App("memory://")

    @app.workflow("shop.listen.v1")
    async def listen(ctx, got: list[int]) -> list[int]:
        event = await ctx.await_event("tick", key="tick")
        got = [*got, event.payload]
        if len(got) == 1:
            await app.pause(ctx.run_id, by="ann")
        if len(got) < count:
            ctx.continue_as(got)
        return got

    @app.workflow("shop.parent.v1")
    async def parent(ctx) -> list[int]:
        return await ctx.call(listen, [], key="child")

    return app, parent


def explore_chain(store, count=3):
    """Run a chain of so many runs with every crash, and return the number of plays.

    No play loses an event or delivers an event twice.
    """
    app, parent = loops(count)
    results = []

    def script(stage, run):
        emitted = resumed = 0
        for _ in range(100):
            if run.status in {Status.SUCCEEDED, Status.FAILED}:
                break
            first = next((one for one in stage.runs("shop.listen.v1")), None)
            if first is not None and emitted < count:
                emitted += 1
                by = {"run": first.id} if emitted % 2 else {}
                stage.emit("tick", emitted, id=f"tick-{emitted}", **by)
            if first is not None and first.status is Status.PAUSED:
                resumed += 1
                stage.resume(first)
            stage.advance(1)
        assert resumed
        results.append(stage.do(stage.app.result(run.id)))

    report = explore(parent, app=app, store=store, script=script)
    assert all(result == list(range(1, count + 1)) for result in results)
    return report.plays
