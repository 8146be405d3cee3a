"""The entry point: the table of commands, and errors as one line with an exit code.

Nothing heavy is imported here: `holdfast --help` answers from the table below.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Any, NamedTuple, NoReturn

import click

from holdfast import __version__, errors

from . import INTERRUPTED, end_imports
from .options import store_option

MESSAGE_MAX, READ_MAX = 4_000, 16_000  # characters of an error that are shown, that are read
REFUSED, USAGE, NO_STORE = 1, 2, 3


class Entry(NamedTuple):
    """A command before it is imported: its module, and its line in `--help`."""

    module: str
    help: str


TABLE: dict[str, dict[str, Entry]] = {
    "Runs": {
        "start": Entry("commands.start", "Start a run; with --wait also wait for its result."),
        "result": Entry("commands.result", "Wait until a run has ended, and print its result."),
        "ls": Entry("commands.ls", "List runs, newest first."),
        "show": Entry("commands.show", "Show one run: status, waits, error, steps."),
        "trail": Entry("commands.trail", "Show what happened to a run, in order; --follow waits for more."),
        "explain": Entry("commands.doctor", "Say why a run is not moving."),
        "emit": Entry("commands.emit", "Send an event to the runs that wait for it."),
        "schedule": Entry(
            "commands.schedule", "Start runs at given times: by cron in a time zone, or at an interval."
        ),
    },
    "Operating": {
        "approvals": Entry("commands.approvals", "List the gates that wait for a decision."),
        "approve": Entry("commands.approvals", "Approve a gate of a run."),
        "reject": Entry("commands.approvals", "Reject a gate of a run."),
        "cancel": Entry("commands.operate", "Cancel an open run and its open child runs."),
        "pause": Entry("commands.operate", "Pause a run; a running one pauses at its next step."),
        "resume": Entry("commands.operate", "Let a paused run continue."),
        "rewind": Entry("commands.operate", "Forget a step and all later ones, and execute them again."),
        "retry": Entry("commands.operate", "Let a failed run continue at the step that failed."),
        "rerun": Entry("commands.rerun", "Start a new run that repeats another one, ended or open."),
        "prioritize": Entry("commands.operate", "Change the priority of an open run, 0 to 999."),
        "delete": Entry("commands.delete", "Hide a run; `restore` shows it again until it is purged."),
        "restore": Entry("commands.delete", "Show a deleted run again; an open one continues."),
        "definitions": Entry(
            "commands.definitions", "List the published workflows, or show one with its schemas."
        ),
        "bulk": Entry("commands.bulk", "Watch, stop and resume operations on many runs."),
        "registry": Entry(
            "commands.registry", "Choose which runtime executes a workflow type, or disable the type."
        ),
        "limit": Entry(
            "commands.limit", "Limit how many runs execute at once, and how many start in a given time."
        ),
        "outbox": Entry("commands.outbox", "List the messages that runs have sent, and send some again."),
        "sink": Entry("commands.sink", "Manage the webhooks that messages are posted to."),
        "keys": Entry("commands.keys", "Create, list, rotate and revoke the API keys of the HTTP API."),
        "audit": Entry("commands.keys", "Show who did what with API keys, newest first."),
    },
    "Processes": {
        "worker": Entry("commands.worker", "Execute runs until it is stopped."),
        "serve": Entry("commands.serve", "Serve the HTTP API and the dashboard until it is stopped."),
        "dev": Entry("commands.dev", "Run a worker and the HTTP API for development; print what happens."),
        "tick": Entry("commands.tick", "Do the chores that wake and recover runs, once or with --loop."),
        "conformance": Entry(
            "commands.conformance.command", "Judge a worker program by the worker protocol."
        ),
    },
    "Store": {
        "stats": Entry(
            "commands.telemetry.stats", "Show how many runs there are, what is due, and the last hour."
        ),
        "metrics": Entry(
            "commands.telemetry.metrics", "Print the Grafana dashboard, or the alert rules for Prometheus."
        ),
        "doctor": Entry("commands.doctor", "Check a store for problems, and say how to fix them."),
        "purge": Entry(
            "commands.purge", "Remove expired data for good: finished runs, deleted runs, old events."
        ),
        "export": Entry(
            "commands.transfer.files", "Write runs into a new FILE, which `import` reads into any store."
        ),
        "import": Entry("commands.transfer.files", "Read a FILE of `export` into the store."),
        "move": Entry("commands.transfer.move", "Move runs from one store into another."),
        "migrate": Entry("commands.migrate", "Create the store, or update its schema to this version."),
        "redis": Entry("commands.migrate", "Print the script by which other languages start runs in Redis."),
    },
    "First steps": {
        "demo": Entry("demo.command", "See a workflow survive a killed process."),
    },
}
COMMANDS = {name: entry for group in TABLE.values() for name, entry in group.items()}
# Words of other tools whose nearest spelling here is another command.
OTHER_WORDS = {
    "help": ["--help"],
    "inspect": ["show", "explain"],
    "list": ["ls"],
    "logs": ["trail"],
    "ps": ["ls"],
    "run": ["worker", "start"],
    "runs": ["ls"],
    "status": ["show", "stats"],
    "why": ["explain"],
    "workers": ["stats", "doctor"],
}


class LazyGroup(click.Group):
    """A group that knows its commands by name, and imports one when it is called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Without arguments Click raises an error whose message is the whole help; print the help instead.
        return super().parse_args(ctx, args or ["--help"])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"holdfast.cli.{COMMANDS[cmd_name].module}")
        end_imports()
        command: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = OTHER_WORDS.get(args[0]) or get_close_matches(args[0], COMMANDS, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "`holdfast --help` lists the commands"
            hint = "name a store with --store URL" if "://" in args[0] else hint
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in TABLE.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in entries.items()], col_max=12)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _give_up_output()  # the reader has gone (`| head`)
            return 0
        except (click.ClickException, errors.HoldfastError) as error:
            return _refuse(error)  # here the store is known, which commands in the message must name
        except OSError as error:
            if error.errno not in _FULL or error.filename is not None:
                raise
            _give_up_output()
            return _refuse(errors.HoldfastError(f"the output cannot be written: {error.strerror}"))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run as click does, but print every expected error as one line on stderr, without a traceback."""
        extra["standalone_mode"] = False
        try:
            code = super().main(args, *rest, **extra)
        except (KeyboardInterrupt, click.Abort):
            _say("")
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            sys.exit(_refuse(error))
        sys.exit(code if isinstance(code, int) else 0)


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # of a file that the output goes to


def _give_up_output() -> None:
    """Let Python not try to flush the rest at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(error: click.ClickException | errors.HoldfastError) -> int:
    """Print the error; return the exit code."""
    if isinstance(error, click.ClickException):
        _complain(_message(error))
        return error.exit_code
    _complain(str(error))
    return exit_code(error)


def exit_code(error: errors.HoldfastError) -> int:
    """The exit code: 3 for a problem of the store, 2 for a wrong call, 1 if refused or failed."""
    if isinstance(error, errors.StoreError):
        return NO_STORE
    refused = (
        errors.UnknownRun
        | errors.UnknownWorkflow
        | errors.UnknownStep
        | errors.UnknownSchedule
        | errors.UnknownMessage
        | errors.UnknownApiKey
    )
    return USAGE if isinstance(error, errors.UsageError) and not isinstance(error, refused) else REFUSED


# Long arguments in a message are cut: the reason stands after them.
_QUOTED = re.compile(r"'([^']{60})[^']{20,}'")


def _message(error: click.ClickException) -> str:
    """Click's message in one line; for a wrong call it names the help."""
    said = error.format_message()[:READ_MAX]
    if isinstance(error, click.MissingParameter):  # Click writes one choice a line
        said = " ".join(said.split())
    message = _QUOTED.sub(r"'\1…'", said).rstrip(".")
    message = message[:1].lower() + message[1:] if message[:2].istitle() else message
    context = error.ctx if isinstance(error, click.UsageError) else None
    return (
        message if context is None or "`" in message else f"{message} (see `{context.command_path} --help`)"
    )


def _complain(message: str) -> None:
    from holdfast.shown.text import clean
    from holdfast.stores import redacted

    from .program import pastable

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

    Where a command takes a RUN, give its id, or at least the last 6 characters of it.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def _show_bug(*error: Any) -> None:
    """Print the traceback of an unexpected error, escaped: it may contain text of users."""
    from traceback import format_exception

    from holdfast.escaping import escaped_lines

    _say(escaped_lines("".join(format_exception(*error)).rstrip("\n")))


def main() -> NoReturn:
    """Run the `holdfast` script."""
    sys.excepthook = _show_bug
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character must not make the command fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    cli.main(prog_name=usage_name())


def usage_name() -> str:
    """The name of the program in usage lines."""
    return "holdfast"
