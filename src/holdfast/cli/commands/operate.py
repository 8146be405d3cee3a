"""Commands that change one run, or with --where many: cancel, pause, resume, rewind, retry, prioritize."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import click

from holdfast.cli import session
from holdfast.cli.bulk import Start, is_bulk, operate_on_many, run_or_where
from holdfast.cli.clients import Client
from holdfast.cli.find import find
from holdfast.cli.options import by_option, json_option, run_argument, store_option
from holdfast.cli.questions import yes_option
from holdfast.cli.terminal import coloured_status, print_json
from holdfast.lifecycle import Status
from holdfast.records import BEGINNING, Run
from holdfast.records.units import amount
from holdfast.shown.data import run_data
from holdfast.shown.text import by_whom, clean, short

Verb = Callable[[Client, UUID, str], Awaitable[Run]]
F = TypeVar("F", bound=Callable[..., Any])


def _keep_option(command: F) -> F:
    return click.option("--keep-children", is_flag=True, help="Leave its child runs alone.")(command)


@click.command()
@run_or_where
@_keep_option
@by_option
@yes_option
@json_option
@store_option()
def cancel(run: str | None, *, keep_children: bool, **options: Any) -> None:
    """Cancel an open run and its open child runs.

    Its worker stops; finished steps keep their results. Cancelling it again changes nothing. With --where
    instead of RUN, all open runs that match.
    """
    children = not keep_children
    _operate(
        "cancel",
        run,
        lambda client, run_id, who: client.cancel(run_id, by=who, children=children),
        lambda client, where, more: client.bulk.cancel(where, children=children, **more),
        **options,
    )


@click.command()
@run_or_where
@by_option
@yes_option
@json_option
@store_option()
def pause(run: str | None, **options: Any) -> None:
    """Pause a run; a running one pauses at its next step.

    Timers go on and events are kept while the run is paused. With --where instead of RUN, all open runs that
    match.
    """
    _operate(
        "pause",
        run,
        lambda client, run_id, who: client.pause(run_id, by=who),
        lambda client, where, more: client.bulk.pause(where, **more),
        **options,
    )


@click.command()
@run_or_where
@click.option(
    "--budget",
    type=float,
    metavar="COST",
    help="Its new budget; a run that its budget has stopped needs one.",
)
@by_option
@yes_option
@json_option
@store_option()
def resume(run: str | None, *, budget: float | None, **options: Any) -> None:
    """Let a paused run continue.

    A run that has reached its budget needs a new one, above what it has spent. With --budget a run that is
    not paused gets the budget too, and goes on as it is. With --where instead of RUN, all paused runs that
    match.
    """
    if budget is not None and run is None:
        raise click.UsageError("--budget belongs to one RUN: name it")
    _operate(
        "resume",
        run,
        lambda client, run_id, who: client.resume(run_id, by=who, budget=budget),
        lambda client, where, more: client.bulk.resume(where, **more),
        shows_budget=budget is not None,
        **options,
    )


@click.command()
@run_or_where
@click.argument("step", required=False)
@click.option("--beginning", is_flag=True, help="Forget all steps.")
@_keep_option
@by_option
@yes_option
@json_option
@store_option()
def rewind(
    run: str | None,
    step: str | None,
    *,
    texts: tuple[str, ...],
    beginning: bool,
    keep_children: bool,
    **options: Any,
) -> None:
    """Forget a step and all later ones, and execute them again.

    STEP is a name from `holdfast show`; use --beginning instead to forget all steps. Open child runs of
    forgotten steps are cancelled. With --where instead of RUN, all runs that match: `rewind --where
    type=shop.order STEP`.
    """
    if texts and step is None:
        run, step = None, run  # the only word is the step
    if beginning == (step is not None):
        raise click.UsageError("name a STEP from `holdfast show`, or give --beginning")
    children, to = not keep_children, BEGINNING if step is None else step
    _operate(
        "rewind",
        run,
        lambda client, run_id, who: client.rewind(run_id, to, by=who, children=children),
        lambda client, where, more: client.bulk.rewind(where, to, children=children, **more),
        texts=texts,
        **options,
    )


@click.command()
@run_or_where
@by_option
@yes_option
@json_option
@store_option()
def retry(run: str | None, **options: Any) -> None:
    """Let a failed run continue at the step that failed.

    Recorded steps keep their results; the count of attempts starts again. With --where instead of RUN, all
    failed runs that match.
    """
    _operate(
        "retry",
        run,
        lambda client, run_id, who: client.retry(run_id, by=who),
        lambda client, where, more: client.bulk.retry(where, **more),
        **options,
    )


@click.command()
@run_argument
@click.argument("priority", type=click.IntRange(0, 999))
@by_option
@json_option
@store_option()
def prioritize(run: str, priority: int, by: str | None, *, as_json: bool) -> None:
    """Change the priority of an open run, 0 to 999.

    Runs with a lower number start first. A running run is not interrupted: the priority counts when the run
    is in the queue again.
    """
    _operate_on_one(
        run,
        by,
        lambda client, run_id, who: client.set_priority(run_id, priority, by=who),
        as_json=as_json,
        sentence=f"has priority {priority}",
    )


def _operate(
    name: str,
    run_text: str | None,
    verb: Verb,
    start: Start,
    *,
    texts: tuple[str, ...],
    by: str | None,
    as_json: bool,
    rate: int | None,
    yes: bool,
    no_wait: bool,
    all_tenants: bool,
    shows_budget: bool = False,
) -> None:
    if is_bulk(run_text, texts, rate=rate, no_wait=no_wait, all_tenants=all_tenants):
        operate_on_many(
            name,
            texts,
            start,
            by=by,
            rate=rate,
            yes=yes,
            no_wait=no_wait,
            all_tenants=all_tenants,
            as_json=as_json,
        )
    else:
        _operate_on_one(run_text or "", by, verb, as_json=as_json, shows_budget=shows_budget)


def _operate_on_one(
    run_text: str,
    by: str | None,
    verb: Verb,
    *,
    as_json: bool,
    sentence: str = "",
    shows_budget: bool = False,
) -> None:
    async def work(client: Client) -> None:
        run = await verb(client, (await find(client, run_text)).id, session.operator(by))
        if as_json:
            print_json(run_data(run))
        else:
            said = sentence or f"is {_status(run)}"
            budget = f"; its budget is {amount(run.budget_units or 0)}" if shows_budget else ""
            click.echo(f"{short(run.id)} ({clean(run.type)}) {said}{budget}")

    session.run(work)


def _status(run: Run) -> str:
    word = coloured_status(run.status)
    if run.status is Status.LEASED and run.pause_asked_by is not None:
        return f"still {word}; it pauses at its next step, as requested{by_whom(run.pause_asked_by)}"
    return f"now {word}"
