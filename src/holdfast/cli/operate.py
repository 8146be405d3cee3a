"""What an operator does to one run: cancel, pause, resume, rewind, retry, prioritize."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import click

from holdfast.engine.client import Client
from holdfast.lifecycle import Status
from holdfast.records import BEGINNING, Run

from . import session
from .find import find, short
from .options import by_option, json_option, run_argument, store_option
from .shape import print_json, run_data
from .text import clean, status_word
from .words import by_whom

Verb = Callable[[Client, UUID, str], Awaitable[Run]]
F = TypeVar("F", bound=Callable[..., Any])


def _keep_option(command: F) -> F:
    return click.option("--keep-children", is_flag=True, help="Let its child runs go on.")(command)


@click.command()
@run_argument
@_keep_option
@by_option
@json_option
@store_option()
def cancel(run: str, by: str | None, *, keep_children: bool, as_json: bool) -> None:
    """Cancel an open run, and its open children.

    Its worker stops; finished steps keep their results. Again: nothing changes.
    """
    children = not keep_children
    _operate(
        run, by, lambda client, run_id, who: client.cancel(run_id, by=who, children=children), as_json=as_json
    )


@click.command()
@run_argument
@by_option
@json_option
@store_option()
def pause(run: str, by: str | None, *, as_json: bool) -> None:
    """Pause a run, a running one at its next step.

    Timers go on and events are kept while it is paused.
    """
    _operate(run, by, lambda client, run_id, who: client.pause(run_id, by=who), as_json=as_json)


@click.command()
@run_argument
@by_option
@json_option
@store_option()
def resume(run: str, by: str | None, *, as_json: bool) -> None:
    """Let a paused run go on."""
    _operate(run, by, lambda client, run_id, who: client.resume(run_id, by=who), as_json=as_json)


@click.command()
@run_argument
@click.argument("step", required=False)
@click.option("--beginning", is_flag=True, help="Forget all steps.")
@_keep_option
@by_option
@json_option
@store_option()
def rewind(
    run: str, step: str | None, by: str | None, *, beginning: bool, keep_children: bool, as_json: bool
) -> None:
    """Forget a step and all later ones, and go on from there.

    STEP is a name as `holdfast show` lists it; --beginning instead forgets all steps. Open children of
    forgotten steps are cancelled.
    """
    if beginning == (step is not None):
        raise click.UsageError("give a STEP, as `holdfast show` lists it, or --beginning")
    children, to = not keep_children, BEGINNING if step is None else step
    _operate(
        run,
        by,
        lambda client, run_id, who: client.rewind(run_id, to, by=who, children=children),
        as_json=as_json,
    )


@click.command()
@run_argument
@by_option
@json_option
@store_option()
def retry(run: str, by: str | None, *, as_json: bool) -> None:
    """Let a failed run go on at the step that failed.

    Recorded steps stay; attempts are counted anew.
    """
    _operate(run, by, lambda client, run_id, who: client.retry(run_id, by=who), as_json=as_json)


@click.command()
@run_argument
@click.argument("priority", type=click.IntRange(0, 999))
@by_option
@json_option
@store_option()
def prioritize(run: str, priority: int, by: str | None, *, as_json: bool) -> None:
    """Give an open run another priority, 0 to 999.

    The lowest number is claimed first. A running one goes on; it counts when the run is in the queue again.
    """
    _operate(
        run,
        by,
        lambda client, run_id, who: client.set_priority(run_id, priority, by=who),
        as_json=as_json,
        told=f"has priority {priority}",
    )


def _operate(said: str, by: str | None, verb: Verb, *, as_json: bool, told: str = "") -> None:
    async def work(client: Client) -> None:
        run = await verb(client, (await find(client, said)).id, session.operator(by))
        if as_json:
            print_json(run_data(run))
        else:
            click.echo(f"{short(run.id)} ({clean(run.type)}) {told or f'is {_now(run)}'}")

    session.run(work)


def _now(run: Run) -> str:
    word = status_word(run.status)
    if run.status is Status.LEASED and run.pause_asked_by is not None:
        return f"still {word}, and pauses at its next step, as asked{by_whom(run.pause_asked_by)}"
    return f"now {word}"
