"""Plans on the command line: started by name alone, shown with all their steps."""

from __future__ import annotations

import asyncio
import sys

import pytest

import holdfast as hf
from holdfast import App, Approval, Status, Task, Waiting
from holdfast.records import ANY
from tests.cli.conftest import eventually

TYPE = "shop.fulfil.v1"


def shop(url):
    app = App(url)
    plan = app.plan(TYPE, [Task("VALIDATE"), Approval("MANAGER", ask="Ship?"), Task("SHIP", attempts=5)])

    @plan.task("VALIDATE")
    async def validate(task):
        return task.params["id"]

    @plan.task("SHIP")
    async def ship(task):
        return Waiting("carrier", timeout=hf.days(1))

    return app


@pytest.fixture
def published(url):
    asyncio.run(_publish(shop(url)))


async def _publish(app):
    await app.publish()
    await app.close()


def work(url, *statuses):
    """Be a worker until the only run is in one of these statuses."""

    async def worked():
        app = shop(url)
        async with asyncio.timeout(20), app.worker():
            while (await app.list())[0].status not in statuses:  # noqa: ASYNC110 - a worker tells nobody
                await asyncio.sleep(0.005)
        await app.close()

    asyncio.run(worked())


def table(cli_, run):
    lines = cli_("show", run).stdout.split("\n\n")[1].splitlines()
    return [line.split()[:4] for line in lines]


@pytest.mark.spec("PLAN-1", "PLAN-12", "CLI-1")
@pytest.mark.parametrize("name", [TYPE, "shop.fulfil"])
def test_a_start_by_name_takes_the_steps_from_what_is_published(cli_, published, name):
    run = cli_.start(name, '{"id": 7}')
    assert table(cli_, run) == [
        ["#", "STEP", "KIND", "STATUS"],
        ["1", "VALIDATE", "task", "ready"],
        ["2", "MANAGER", "approval", "pending"],
        ["3", "SHIP", "task", "pending"],
    ]
    shown = cli_("show", run).stdout
    assert "at step  1 of 3: VALIDATE" in shown
    assert [(step["seq"], step["step"]) for step in cli_.json("show", run)["steps"]] == [
        (0, "VALIDATE"),
        (1, "MANAGER"),
        (2, "SHIP"),
    ]


@pytest.mark.spec("CLI-4", "PLAN-17")
def test_ls_shows_the_current_step_of_a_plan(cli_, published):
    cli_.start(TYPE, '{"id": 7}')
    assert "at step 1: VALIDATE" in cli_("ls").stdout
    seen = cli_.json("ls")
    assert (seen["current_step_seq"], seen["current_step_name"]) == (0, "VALIDATE")


@pytest.mark.spec("CLI-4")
def test_show_and_trail_show_the_current_step_of_a_plan(cli_, url, published):
    run = cli_.start(TYPE, '{"id": 7}')
    work(url, Status.WAITING)
    assert [row[3] for row in table(cli_, run)[1:]] == ["succeeded", "waiting", "pending"]

    async def approve():
        app = App(url)
        await app.store.open()
        await app.store.decide((await app.list())[0].id, approved=True, tenant=ANY)
        await app.close()

    asyncio.run(approve())
    work(url, Status.WAITING)
    shown = cli_("show", run).stdout
    assert "at step    3 of 3: SHIP" in shown
    assert "an event on 'carrier', for task SHIP, began " in shown
    assert "task SHIP waits" in cli_("trail", run).stdout


@pytest.mark.spec("CLI-4", "PLAN-10")
def test_show_counts_the_attempts_of_the_task_that_failed(cli_, url):
    """Against its own number, not the run's, and as many as there were."""

    async def exhaust():
        app = App(url)
        plan = app.plan(TYPE, [Task("A"), Task("SHIP", attempts=2)], retry=hf.Backoff.fixed(0, attempts=5))
        plan.task("A")(lambda _: 1)

        @plan.task("SHIP")
        async def ship(task):
            raise ValueError("no")

        async with app.worker():
            run = await app.start(plan)
            await app.final(run.id, 20)
        await app.close()
        return run.id

    run = asyncio.run(exhaust())
    assert "attempts     2 of 2\n" in cli_("show", run).stdout
    steps = cli_.json("show", run)["steps"]
    assert [(one["attempts"], one["max_attempts"]) for one in steps] == [(1, 5), (2, 2)]


@pytest.mark.spec("PLAN-7")
def test_a_tick_may_leave_the_deadlines_of_plans_alone(cli_, url):
    async def wait():
        app = App(url)
        await app.start(app.plan(TYPE, [hf.Wait("PAID", "paid", timeout=0.01)]))
        await app.close()

    asyncio.run(wait())
    eventually(lambda: "this time has passed" in cli_("explain", cli_.json("ls")["id"]).stdout)
    assert cli_.json("tick", "--no-wait-timeouts")["lapsed"] == 0
    assert cli_.json("tick")["lapsed"] == 1


@pytest.mark.spec("PLAN-7")
@pytest.mark.parametrize("command", ["worker", "dev"])
@pytest.mark.parametrize(("option", "told"), [([], True), (["--no-wait-timeouts"], False)])
def test_a_worker_may_leave_the_deadlines_of_plans_alone(cli_, tmp_path, monkeypatch, command, option, told):
    (tmp_path / "waiting_shop.py").write_text(
        f"import holdfast as hf\napp = hf.App()\napp.workflow('{TYPE}')(lambda ctx: 1)\n"
    )
    given = {}

    async def work(app, **options):
        given.update(options)

    monkeypatch.setattr(App, "work", work)
    monkeypatch.setattr(App, "run", lambda _, **options: given.update(options))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "waiting_shop", raising=False)  # that of another test has another store
    assert (
        cli_(command, "waiting_shop:app", *option, *(["--no-reload"] if command == "dev" else [])).exit_code
        == 0
    )
    assert given["wait_timeouts"] is told


def test_a_worker_with_other_steps_of_the_same_version_stops_with_one_line(
    cli_, published, tmp_path, process, url
):
    (tmp_path / "other.py").write_text(
        "import holdfast as hf\n"
        "app = hf.App()\n"
        f"plan = app.plan('{TYPE}', [hf.Task('VALIDATE'), hf.Task('SHIP')])\n"
    )
    one = process("--store", url, "worker", "other:app")
    _, said = one.communicate(timeout=30)
    assert one.returncode == 1
    assert "Traceback" not in said
    assert TYPE in said.strip().splitlines()[-1]
