"""Errors of the library about keywords, as errors about the options that a person typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from holdfast.errors import UsageError


@contextmanager
def flags_in_errors() -> Iterator[None]:
    """Rewrite a UsageError that is raised inside: keywords become options of the current command."""
    try:
        yield
    except UsageError as error:
        if type(error) is UsageError:
            error.args = (as_flags(str(error), click.get_current_context().command),)
        raise


def as_flags(message: str, command: click.Command) -> str:
    """`max_attempts is 0` becomes `--max-attempts is 0`; other words stay."""
    for param in command.params:
        flag = next((one for one in param.opts if one.startswith("--")), None)
        if flag is None or param.name is None:
            continue
        name = rf"(?<![\w-]){re.escape(param.name)}"
        message = re.sub(rf"{name}=(?=[\s,;:.]|$)", flag, message)
        message = re.sub(rf"{name}=", f"{flag} ", message)
        # A name of one word may be an ordinary word: replace it only at the beginning of the message.
        bare = rf"{name}(?![\w-])" if "_" in param.name else rf"^{re.escape(param.name)}(?= )"
        message = re.sub(bare, flag, message)
    return message
