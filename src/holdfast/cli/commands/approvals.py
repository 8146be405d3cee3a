"""`holdfast approvals`, `approve` and `reject`: the gates that wait for a decision."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec.structs import asdict

from holdfast import api_keys
from holdfast.cli import session
from holdfast.cli.clients import Client, everyone, is_api
from holdfast.cli.find import find
from holdfast.cli.options import ROWS, by_option, duration_option, json_option, run_argument, store_option
from holdfast.cli.program import repeated
from holdfast.cli.terminal import print_json, table
from holdfast.engine.pages import gathered
from holdfast.http.cursors import Cursors
from holdfast.http.gate_links import GateLink, link_path
from holdfast.records import DEFAULT_TENANT, ApprovalRequest
from holdfast.shown.approvals import decided_sentence, question
from holdfast.shown.data import approval_data, decided_data
from holdfast.shown.text import clean, short
from holdfast.shown.times import ago

if TYPE_CHECKING:
    from holdfast.engine.app.client import StoreClient

LIMIT = 20
LINK_SECONDS = 86400.0
Linker = Callable[[ApprovalRequest], str]


@click.command()
@click.option("--tenant", metavar="NAME", help="Only gates of this tenant.")
@click.option(
    "--limit",
    type=ROWS,
    default=LIMIT,
    metavar="N",
    help=f"The number of gates to list; {LIMIT} by default.",
)
@click.option("--after", nargs=2, metavar="RUN GATE", help="Only gates listed after this one: the next page.")
@click.option(
    "--link",
    "server",
    metavar="URL",
    help="Also print a signed link to each gate, on the dashboard of this server: https://flows.example.org.",
)
@duration_option("--valid", "How long the links are valid: 8h, 7d; a day by default.")
@json_option
@store_option()
def approvals(
    tenant: str | None,
    limit: int,
    after: tuple[str, str] | None,
    server: str | None,
    valid: float | None,
    *,
    as_json: bool,
) -> None:
    """List the gates that wait for a decision.

    The oldest run comes first. OPENED is when the gate began to wait, DEADLINE when it gives up. With --json
    each gate is one line; its `digest` identifies the question and its data, for `approve --digest`.

    A link shows one gate until it expires. Whoever opens it has to sign in with an API key that may decide.
    """
    if server is not None and not server.startswith(("http://", "https://")):
        raise click.UsageError("--link needs the URL of a server, such as https://flows.example.org")
    if valid is not None and server is None:
        raise click.UsageError("--valid is for links: give it with --link URL")

    async def work(client: Client) -> None:
        link = None if server is None else await _linker(client, server, valid or LINK_SECONDS)
        await _approvals(client, tenant, limit, after, link, as_json=as_json)

    session.run(work)


async def _linker(client: Client, server: str, seconds: float) -> Linker:
    """Return a function that makes the link of a gate, signed with the key of the store."""
    if is_api(client):
        raise click.UsageError("--link needs the store itself, which has the signing key")
    store = cast("StoreClient", client).store
    keys = await store.signing_keys(api_keys.make_signing_key())
    cursors = Cursors([one.secret for one in keys])
    until = await client.now() + timedelta(seconds=seconds)

    def link(gate: ApprovalRequest) -> str:
        facts = GateLink(gate.tenant, gate.run, gate.step, gate.digest, until)
        return f"{server.rstrip('/')}{link_path(cursors, facts)}"

    return link


async def _approvals(
    client: Client,
    tenant: str | None,
    limit: int,
    after: tuple[str, str] | None,
    link: Linker | None,
    *,
    as_json: bool,
) -> None:
    last = None if after is None else ((await find(client, after[0])).id, after[1])
    fetch = partial(client.approvals, everyone(client) if tenant is None else tenant)
    found = await gathered(fetch, limit + 1, last, lambda gate: (gate.run, gate.step))
    gates = found[:limit]
    if as_json:
        for gate in gates:
            shown = approval_data(gate)
            print_json(shown if link is None else {**asdict(shown), "link": link(gate)})
        return
    now = await client.now()
    if not gates:
        click.echo("no gate waits for a decision")
        return
    tenants = any(gate.tenant != DEFAULT_TENANT for gate in gates)
    head = ["RUN", "GATE", "TYPE", *(["TENANT"] if tenants else []), "OPENED", "DEADLINE", "QUESTION"]
    click.echo("\n".join(table(head, [_row(gate, now, tenants=tenants) for gate in gates])))
    if link is not None:
        for gate in gates:
            click.echo(f"{short(gate.run)} {clean(gate.step)}: {link(gate)}")
    if len(found) > limit:
        # The whole id: it is found however many runs are newer, and those that wait longest come first.
        more = repeated(after=(gates[-1].run, gates[-1].step))
        click.echo(f"more: {clean(more)}", err=True)


def _row(gate: ApprovalRequest, now: datetime, *, tenants: bool) -> list[str]:
    tenant = [clean(gate.tenant)] if tenants else []
    opened, deadline = ago(gate.opened_at, now), "-" if gate.due_at is None else ago(gate.due_at, now)
    return [short(gate.run), clean(gate.step), clean(gate.type), *tenant, opened, deadline, question(gate)]


def _decision_options(command: Any) -> Any:
    for option in (
        store_option(),
        json_option,
        click.option(
            "--digest", metavar="TEXT", help="Decide only if the gate still has this digest; else refuse."
        ),
        click.option("--comment", metavar="TEXT", default="", help="The reason, for the record."),
        by_option,
        click.argument("step", metavar="[GATE]", required=False),
        run_argument,
    ):
        command = option(command)
    return command


@click.command()
@_decision_options
def approve(run: str, step: str | None, by: str | None, **options: Any) -> None:
    """Approve a gate of a run.

    GATE is a name from `holdfast approvals`; leave it out if the run has had one gate only. Repeating a
    decision changes nothing; the opposite decision is refused.
    """
    _decide(run, step, by, approved=True, **options)


@click.command()
@_decision_options
def reject(run: str, step: str | None, by: str | None, **options: Any) -> None:
    """Reject a gate of a run.

    A plan fails then. The code of a code workflow receives the decision and goes on. Everything else is as
    for `approve`.
    """
    _decide(run, step, by, approved=False, **options)


def _decide(
    run_text: str,
    step: str | None,
    by: str | None,
    *,
    approved: bool,
    comment: str,
    digest: str | None,
    as_json: bool,
) -> None:
    async def work(client: Client) -> None:
        run = (await find(client, run_text)).id
        verb = client.approve if approved else client.reject
        decided = await verb(run, step, by=session.operator(by), comment=comment, digest=digest)
        print_json(decided_data(decided)) if as_json else click.echo(decided_sentence(decided))

    session.run(work)
