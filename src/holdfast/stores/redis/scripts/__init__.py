"""Scripts that the server runs. Each file says what its keys and words mean."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

# Servers since 7 need this to refuse a script before its first write when memory is full; older ones cannot
# read it.
_FLAGS = "#!lua flags=\n"
_READS = "#!lua flags=no-writes\n"
READS = frozenset({"heads", "outline"})  # scripts that only read
_INCLUDE = re.compile(r"^--#include (\w+)\.lua$\n", re.MULTILINE)


class Script(NamedTuple):
    """A script, and the name under which a server keeps it."""

    text: str
    sha: str


@cache
def script(name: str, *, flagged: bool) -> Script:
    """Return a script. flagged: for a server that knows flags."""
    text = _read(name)
    text = (_READS if name in READS else _FLAGS) + text if flagged else text
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    text = files(__package__).joinpath(f"{name}.lua").read_text("utf-8")
    return _INCLUDE.sub(lambda found: _read(found[1]), text)
