"""What a person has to type to call this program again, from where they are."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


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


def _python() -> str:
    found = shutil.which("python")
    return "python" if found is not None and Path(found).samefile(sys.executable) else sys.executable
