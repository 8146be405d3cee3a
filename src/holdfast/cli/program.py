"""Commands for people to copy: with the program's name as it works here, and with the current store."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from holdfast.stores import shown

from .options import STORE, STORE_TYPED

PASSWORD = "PASSWORD"  # noqa: S105 - a placeholder, to be filled in by the person
_COMMAND = re.compile(r"`holdfast ([a-z][^`]*)`")
_TYPED = click.core.ParameterSource.COMMANDLINE


def program_name() -> str:
    """`holdfast` if the shell finds it, else the shortest path to it."""
    called = Path(sys.argv[0])
    if called.name != "holdfast":
        return shlex.join([_python(), "-m", "holdfast.cli"]) if called.name == "__main__.py" else "holdfast"
    found = shutil.which("holdfast")
    if found is not None and Path(found).samefile(called):
        return "holdfast"
    return shlex.quote(short_path(called))


def short_path(path: Path) -> str:
    """The path relative to the current folder, if that is shorter and inside of it."""
    whole = str(path.absolute())
    here = os.path.relpath(whole)
    return here if not here.startswith("..") and len(here) < len(whole) else whole


def pastable(text: str) -> str:
    """The text with each command between backticks as it works from here."""
    return _COMMAND.sub(lambda found: f"`{command(found[1])}`", text)


def command(words: str) -> str:
    """A command with the program's name, and with --store if it was typed."""
    named = words.endswith("--help") or "--store " in words
    head, dashes, names = words.partition(" -- ")
    if "'" in head:  # it stands inside of a name
        head, dashes, names = words, "", ""
    return f"{program_name()} {head}{'' if named else _store()}{dashes}{names}"


def repeated(**changed: Any) -> str:
    """The current command as it was typed, with these options changed."""
    context = click.get_current_context()
    words = context.command_path.split(" ")[1:]
    for param in context.command.params:
        name = param.name or ""
        if name not in changed and context.get_parameter_source(name) is not _TYPED:
            continue
        value = changed.get(name, context.params.get(name))
        if isinstance(param, click.Option) and value is not None:  # --store has no value in the command
            words += _option(param, value)
        elif value is not None:
            words.append(str(value))
    return command(shlex.join(words))


def _option(option: click.Option, value: Any) -> list[str]:
    flag = option.opts[0]
    if option.is_flag:
        return [flag] if value else []
    each = value if option.multiple else [value]
    return [word for one in each for word in (flag, *map(str, one if option.nargs > 1 else [one]))]


def _store() -> str:
    """The option --store if it was typed; a store from the environment need not be repeated."""
    context = click.get_current_context(silent=True)
    if context is None or not context.meta.get(STORE_TYPED):
        return ""
    return f" --store {shlex.quote(shown(context.meta[STORE], PASSWORD))}"


def _python() -> str:
    found = shutil.which("python")
    return "python" if found is not None and Path(found).samefile(sys.executable) else sys.executable
