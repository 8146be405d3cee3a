"""What the library says of its keywords, said of the options that a person typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from holdfast.errors import UsageError


@contextmanager
def spoken_of() -> Iterator[None]:
    """Whatever is wrong with a call within is told in the words of the present command."""
    try:
        yield
    except UsageError as error:
        if type(error) is UsageError:
            error.args = (as_flags(str(error), click.get_current_context().command),)
        raise


def as_flags(message: str, command: click.Command) -> str:
    """`max_attempts is 0` as `--max-attempts is 0`; words that are no keyword there stay as they are."""
    for param in command.params:
        flag = next((one for one in param.opts if one.startswith("--")), None)
        if flag is None or param.name is None:
            continue
        name = rf"(?<![\w-]){re.escape(param.name)}"
        message = re.sub(rf"{name}=(?=[\s,;:.]|$)", flag, message)
        message = re.sub(rf"{name}=", f"{flag} ", message)
        # A name of one word may be a word of the sentence: only where that begins with it, it is meant.
        bare = rf"{name}(?![\w-])" if "_" in param.name else rf"^{re.escape(param.name)}(?= )"
        message = re.sub(bare, flag, message)
    return message
