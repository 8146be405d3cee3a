"""Gates on the command line: what waits for a decision, and deciding it."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import click
import msgspec

from holdfast.engine.client import Client
from holdfast.engine.pages import gathered
from holdfast.records import ANY, DEFAULT_TENANT, ApprovalRequest, Decided, moment
from holdfast.records.reading import MARK, UNREADABLE, read_object

from . import session
from .find import find, short
from .options import ROWS, by_option, json_option, run_argument, store_option
from .program import repeated
from .shape import approval_data, decided_data, print_json
from .text import ago, clean, table

LIMIT = 20


@click.command()
@click.option("--tenant", metavar="NAME", help="Only this tenant's.")
@click.option(
    "--limit",
    type=ROWS,
    default=LIMIT,
    metavar="N",
    help=f"How many; {LIMIT} by default.",
)
@click.option(
    "--after", nargs=2, metavar="RUN GATE", help="Those listed after this gate of this run: the next page."
)
@json_option
@store_option()
def approvals(tenant: str | None, limit: int, after: tuple[str, str] | None, *, as_json: bool) -> None:
    """List the gates that wait for a decision.

    Oldest run first. With --json one line a gate; its digest names what is shown, for `approve --digest`.
    """
    session.run(lambda client: _approvals(client, tenant, limit, after, as_json=as_json))


async def _approvals(
    client: Client, tenant: str | None, limit: int, after: tuple[str, str] | None, *, as_json: bool
) -> None:
    last = None if after is None else ((await find(client, after[0])).id, after[1])
    fetch = partial(client.approvals, ANY if tenant is None else tenant)
    found = await gathered(fetch, limit + 1, last, lambda gate: (gate.run, gate.step))
    gates = found[:limit]
    if as_json:
        for gate in gates:
            print_json(approval_data(gate))
        return
    now = moment(await client.store.now())
    if not gates:
        click.echo("nothing waits for a decision")
        return
    tenants = any(gate.tenant != DEFAULT_TENANT for gate in gates)
    head = ["RUN", "GATE", "TYPE", *(["TENANT"] if tenants else []), "SINCE", "UNTIL", "ASKS"]
    click.echo("\n".join(table(head, [_row(gate, now, tenants=tenants) for gate in gates])))
    if len(found) > limit:
        # The whole id: it is found however many runs are newer, and those that wait longest come first.
        more = repeated(after=(gates[-1].run, gates[-1].step))
        click.echo(f"more: {clean(more)}", err=True)


def _row(gate: ApprovalRequest, now: datetime, *, tenants: bool) -> list[str]:
    tenant = [clean(gate.tenant)] if tenants else []
    until = "-" if gate.due_at is None else ago(gate.due_at, now)
    since = ago(gate.opened_at, now)
    return [short(gate.run), clean(gate.step), clean(gate.type), *tenant, since, until, clean(_asks(gate))]


def _asks(gate: ApprovalRequest) -> str:
    said = read_object(gate.ask_json)
    if MARK in said:
        return f"{UNREADABLE} ({said[MARK]})"
    shown = "" if said.get("data") is None else msgspec.json.encode(said["data"]).decode()
    return f"{said.get('ask') or ''}  {shown}".strip()


def _deciding(command: Any) -> Any:
    for option in (
        store_option(),
        json_option,
        click.option("--digest", metavar="TEXT", help="Only if this is what the gate shows; else refused."),
        click.option("--comment", metavar="TEXT", default="", help="Why, for whoever reads it later."),
        by_option,
        click.argument("step", metavar="[GATE]", required=False),
        run_argument,
    ):
        command = option(command)
    return command


@click.command()
@_deciding
def approve(run: str, step: str | None, by: str | None, **said: Any) -> None:
    """Approve what a run waits for at a gate.

    GATE is a name as `holdfast approvals` lists it; it may be left out while the run has had one only.
    The same decision again changes nothing; the other one is refused.
    """
    _decide(run, step, by, approved=True, **said)


@click.command()
@_deciding
def reject(run: str, step: str | None, by: str | None, **said: Any) -> None:
    """Reject what a run waits for at a gate.

    A plan fails then; a code workflow is told, and goes on. All else as `approve`.
    """
    _decide(run, step, by, approved=False, **said)


def _decide(
    said: str,
    step: str | None,
    by: str | None,
    *,
    approved: bool,
    comment: str,
    digest: str | None,
    as_json: bool,
) -> None:
    async def work(client: Client) -> None:
        run = (await find(client, said)).id
        verb = client.approve if approved else client.reject
        decided = await verb(run, step, by=session.operator(by), comment=comment, digest=digest)
        print_json(decided_data(decided)) if as_json else click.echo(_told(decided))

    session.run(work)


def _told(decided: Decided) -> str:
    made, run = decided.decision, decided.run
    word = "approved" if made.approved else "rejected"
    by = f" by {clean(made.by)}" if made.by else ", for nobody decided in time" if made.timed_out else ""
    before = " before: nothing changed" if decided.repeated else f"; the run is now {run.status}"
    return f"{short(run.id)} ({clean(run.type)}): {clean(decided.step)!r} was {word}{by}{before}"
