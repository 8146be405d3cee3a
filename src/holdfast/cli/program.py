"""What a person has to type to call this program again, from where they are, on the store they are at."""

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

PASSWORD = "PASSWORD"  # noqa: S105 - what stands in its place, to be filled in
_COMMAND = re.compile(r"`holdfast ([a-z][^`]*)`")
_TYPED = click.core.ParameterSource.COMMANDLINE


def spoken() -> str:
    """`holdfast` where that works, else the shortest path that does."""
    called = Path(sys.argv[0])
    if called.name != "holdfast":
        return shlex.join([_python(), "-m", "holdfast.cli"]) if called.name == "__main__.py" else "holdfast"
    found = shutil.which("holdfast")
    if found is not None and Path(found).samefile(called):
        return "holdfast"
    return shlex.quote(nearest(called))


def nearest(path: Path) -> str:
    """Relative to here when that is shorter and does not climb."""
    whole = str(path.absolute())
    here = os.path.relpath(whole)
    return here if not here.startswith("..") and len(here) < len(whole) else whole


def pastable(text: str) -> str:
    """With each command in it, between backticks, as it works from here."""
    return _COMMAND.sub(lambda found: f"`{command(found[1])}`", text)


def command(words: str) -> str:
    """One to be typed next, at the store that was named for this one."""
    named = words.endswith("--help") or "--store " in words
    return f"{spoken()} {words}{'' if named else _store()}"


def repeated(**changed: Any) -> str:
    """The present command again, with what was typed, but for these."""
    context = click.get_current_context()
    words = context.command_path.split(" ")[1:]
    for param in context.command.params:
        name = param.name or ""
        if name not in changed and context.get_parameter_source(name) is not _TYPED:
            continue
        value = changed.get(name, context.params.get(name))
        if isinstance(param, click.Option) and value is not None:  # --store is no value of the command
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
    """Only if it was typed: a terminal keeps its environment."""
    context = click.get_current_context(silent=True)
    if context is None or not context.meta.get(STORE_TYPED):
        return ""
    return f" --store {shlex.quote(shown(context.meta[STORE], PASSWORD))}"


def _python() -> str:
    found = shutil.which("python")
    return "python" if found is not None and Path(found).samefile(sys.executable) else sys.executable
