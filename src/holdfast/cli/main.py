"""The door: which commands there are, and how every mistake becomes one line and an exit code.

Nothing heavy is imported here: `holdfast --help` answers from the table below.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import click

from holdfast import __version__, errors

from .options import store_option

MESSAGE_MAX, READ_MAX = 4_000, 16_000  # characters of an error: that are shown, that are looked at
REFUSED, USAGE, NO_STORE, INTERRUPTED = 1, 2, 3, 130


class Entry(NamedTuple):
    """A command before it is imported: where it lives, and what the list says of it."""

    module: str
    help: str


TABLE: dict[str, dict[str, Entry]] = {
    "Runs": {
        "start": Entry("start", "Start a run, and with --wait follow it to its end."),
        "result": Entry("result", "Wait for a run's end and print what it returned."),
        "ls": Entry("ls", "List runs, newest first."),
        "show": Entry("show", "Show one run: status, waits, error, steps."),
        "trail": Entry("trail", "Show what happened, in order; --follow stays."),
        "explain": Entry("explain", "Say why a run is not moving."),
        "emit": Entry("emit", "Send an event to the runs that wait for it."),
        "schedule": Entry("schedule", "Start runs by the clock: by cron in a time zone, or at an interval."),
    },
    "Operating": {
        "approvals": Entry("decide", "List the gates that wait for a decision."),
        "approve": Entry("decide", "Approve what a run waits for at a gate."),
        "reject": Entry("decide", "Reject what a run waits for at a gate."),
        "cancel": Entry("operate", "Cancel an open run, and its open children."),
        "pause": Entry("operate", "Pause a run, a running one at its next step."),
        "resume": Entry("operate", "Let a paused run go on."),
        "rewind": Entry("operate", "Forget a step and all later ones, and go on from there."),
        "retry": Entry("operate", "Let a failed run go on at the step that failed."),
        "prioritize": Entry("operate", "Give an open run another priority, 0 to 999."),
        "delete": Entry("clean", "Hide a run; `restore` shows it again until it is purged."),
        "restore": Entry("clean", "Show a deleted run again; an open one goes on."),
        "registry": Entry("registry", "Say which runtime executes a type, and whether at all."),
        "limit": Entry("limit", "Limit how much runs at once, how often, and for whom."),
        "outbox": Entry("outbox", "Look at the messages that runs have sent; send some again."),
        "sink": Entry("sink", "Say where messages are posted to."),
    },
    "Processes": {
        "worker": Entry("worker", "Execute runs until told to stop."),
        "dev": Entry("worker", "Worker and keeper for your own machine, telling what happens."),
        "tick": Entry("tick", "Do the chores that wake and recover runs, once or for ever."),
    },
    "Store": {
        "doctor": Entry("doctor", "Look for what is wrong with a store, and say how to mend it."),
        "purge": Entry("clean", "Remove for good what has expired: finished runs, deleted runs, old events."),
        "migrate": Entry("migrate", "Create the store or bring it up to date."),
    },
    "First steps": {
        "demo": Entry("demo.command", "See a workflow survive a killed process."),
    },
}
COMMANDS = {name: entry for group in TABLE.values() for name, entry in group.items()}


class LazyGroup(click.Group):
    """Knows its commands by name, and imports one when it is asked for."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Click makes an error of the bare command, whose message is the whole help: as one line it is a mess.
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"holdfast.cli.{COMMANDS[cmd_name].module}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "`holdfast --help` lists them"
            hint = "name a store by --store URL" if "://" in args[0] else hint
            raise click.UsageError(f"no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in TABLE.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()], col_max=12)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader has seen enough (`| head`). What is still buffered must not be tried again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (click.ClickException, errors.HoldfastError) as error:
            return _refuse(error)  # here, where the store is known: what to type next is said for it

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """As click's own, but every expected error is one line on stderr, and never a traceback."""
        extra["standalone_mode"] = False
        try:
            code = super().main(args, *rest, **extra)
        except (KeyboardInterrupt, click.Abort):
            _say("")
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            sys.exit(_refuse(error))
        sys.exit(code if isinstance(code, int) else 0)


def _refuse(error: click.ClickException | errors.HoldfastError) -> int:
    """Say why; the exit code."""
    if isinstance(error, click.ClickException):
        _complain(_words(error))
        return error.exit_code
    _complain(str(error))
    return exit_code(error)


def exit_code(error: errors.HoldfastError) -> int:
    """3: the store; 1: refused or failed; 2: the call itself is wrong."""
    if isinstance(error, errors.StoreError):
        return NO_STORE
    refused = (
        errors.UnknownRun
        | errors.UnknownWorkflow
        | errors.UnknownStep
        | errors.UnknownSchedule
        | errors.UnknownMessage
    )
    return USAGE if isinstance(error, errors.UsageError) and not isinstance(error, refused) else REFUSED


_QUOTED = re.compile(r"'([^']{60})[^']{20,}'")  # long words that were typed: what is wrong stands behind


def _words(error: click.ClickException) -> str:
    """Click's message in one line; what is wrong with a call says where its help is."""
    said = _QUOTED.sub(r"'\1…'", error.format_message()[:READ_MAX]).rstrip(".")
    said = said[:1].lower() + said[1:] if said[:2].istitle() else said
    context = error.ctx if isinstance(error, click.UsageError) else None
    return said if context is None or "`" in said else f"{said} (see `{context.command_path} --help`)"


def _complain(message: str) -> None:
    from holdfast.stores import redacted

    from .program import pastable
    from .text import clean

    _say(click.style("holdfast: ", fg="red") + pastable(clean(redacted(message[:READ_MAX]), MESSAGE_MAX)))


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        click.echo(message, err=True)


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, "--version", prog_name="holdfast", help="Show the version and stop.")
@store_option(envvar="HOLDFAST_STORE")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Start workflows that survive crashes, watch them, and run the workers that execute them.

    A run may be named by its id, or by the first or last 6 or more characters of it.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def _show_bug(*error: Any) -> None:
    """Print the traceback of an error that nobody expected; the text in it may be of others."""
    from traceback import format_exception

    from holdfast.escaping import escaped_lines

    _say(escaped_lines("".join(format_exception(*error)).rstrip("\n")))


def main() -> NoReturn:
    """What the `holdfast` script calls."""
    sys.excepthook = _show_bug
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    cli.main(prog_name=spoken_name())


def spoken_name() -> str:
    """What usage lines call us."""
    return "holdfast"
