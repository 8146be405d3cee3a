"""Options that many commands share. Imports click and nothing slow."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

DEFAULT_STORE = "sqlite:///holdfast.db"
STORE = "holdfast.store"
STORES = "holdfast.stores"  # all stores that were given, where several are allowed
# Whether the store was given on the command line, not by the environment.
STORE_TYPED = "holdfast.store.typed"

SEQ = click.IntRange(0, 2**63 - 1)  # a sequence number of a store
ROWS = click.IntRange(1, 10_000)  # rows of one page

F = TypeVar("F", bound=Callable[..., Any])

_HELP = (
    "The store: sqlite:///FILE, postgresql://USER@HOST/DATABASE or redis://HOST:6379/0; or https://HOST of "
    "its HTTP API, with an API key in HOLDFAST_KEY. "
    f"Default: the variable HOLDFAST_STORE, else {DEFAULT_STORE}"
)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_YEARS_1000 = 1000 * 365.25 * 86400.0
_NEGATIVE = re.compile(r"-[0-9]")
_JSON = re.compile(r"[{\[]")
JSON_EXAMPLE = """'{"order": 7}'"""
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)\s*(ms|s|m|h|d|w)?")


class _OneStore(click.Option):
    """An option that is parsed as one that may be repeated, so that a second one is seen and refused."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        text = self.resolve_envvar_value(ctx)  # click would split it at spaces
        return None if text is None else (text,)


def store_option(envvar: str | None = None) -> Callable[[F], F]:
    """`--store`, kept in the context: after the command it wins over one before the command."""

    def keep(ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> None:
        if len(value) > 1:
            raise click.UsageError(
                "give --store once: only the command worker takes several, as in "
                "`holdfast worker MODULE:APP --store URL --store URL`"
            )
        if value and value[0]:
            ctx.meta[STORE] = value[0]
            source = ctx.get_parameter_source("store")
            ctx.meta[STORE_TYPED] = source is click.core.ParameterSource.COMMANDLINE

    return click.option(
        "--store",
        metavar="URL",
        cls=_OneStore,
        multiple=True,
        envvar=envvar,
        expose_value=False,
        callback=keep,
        help=f"{_HELP}.",
    )


def stores_option(command: F) -> F:
    """`--store`, which may be repeated."""

    def keep(ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> None:
        if len(set(value)) < len(value):
            raise click.BadParameter("the same store is given twice")
        if value:
            ctx.meta[STORE], ctx.meta[STORES], ctx.meta[STORE_TYPED] = value[0], value, True

    return click.option(
        "--store",
        metavar="URL",
        multiple=True,
        expose_value=False,
        callback=keep,
        help=f"{_HELP}. May be repeated: one worker runs at each store.",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def plain_option(command: F) -> F:
    return click.option(
        "--plain",
        is_flag=True,
        help="Write the value unencrypted although the store is encrypted and no keys are set.",
    )(command)


def by_option(command: F) -> F:
    return click.option(
        "--by", metavar="NAME", help="Your name, as it is recorded; by default the user name of the system."
    )(command)


def limit_key_option(command: F) -> F:
    return click.option(
        "--limit-key", metavar="KEY", help="The limit key of the run: see `holdfast limit set --key`."
    )(command)


def no_wait_timeouts_option(command: F) -> F:
    return click.option(
        "--no-wait-timeouts",
        is_flag=True,
        help="Do not end the waits of plans at their deadlines: other workers do.",
    )(command)


def run_argument(command: F) -> F:
    return click.argument("run", metavar="RUN")(command)


class TakesJson(click.Command):
    """A command with a JSON argument: a negative number must not be parsed as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            # JSON ignores a leading space, and with it the parser does not see an option.
            return super().parse_args(ctx, [f" {arg}" if _NEGATIVE.match(arg) else arg for arg in args])
        except click.NoSuchOption:
            raise
        except click.UsageError as error:
            # Without quotes the shell cuts JSON at its spaces.
            is_cut = any(_JSON.match(arg) and not _is_json(arg) for arg in args)
            if not is_cut or "extra argument" not in error.message:
                raise
            raise click.UsageError(
                f"the shell has cut the JSON at its spaces: put it in single quotes, as in {JSON_EXAMPLE}",
                ctx,
            ) from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def duration(text: str) -> float:
    """Seconds: `90`, `1.5s`, `10m`, `2h`, `1d`."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise click.BadParameter(
            f"{text.strip()[:40]!r} is not a duration: write seconds (90), or 500ms, 1.5s, 10m, 2h, 1d"
        )
    total = float(found[1]) * _UNITS[found[2] or "s"]
    if total > _YEARS_1000:
        raise click.BadParameter(f"{text.strip()[:40]!r} is more than 1,000 years: give less")
    return total


def duration_option(name: str, help_: str) -> Callable[[F], F]:
    return click.option(name, type=duration, metavar="DURATION", help=help_)
