"""The stamp of the environment: a digest of everything that it was made from.

The environment is made again only when the stamp differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
from pathlib import Path

RUNTIME = "runtime"
DEV = "dev"

# The build pins are installed in the environment too: installing the checkout then downloads nothing.
PINS = {RUNTIME: ("runtime.txt", "build.txt"), DEV: ("dev.txt",)}


def pins(root: Path, profile: str) -> list[Path]:
    return [root / "requirements" / name for name in PINS[profile]]


def python(root: Path) -> Path:
    return root / ".venv" / "bin" / "python"


def machine(root: Path) -> str:
    """Return a digest of interpreter and folder: scripts of a moved checkout point to the old folder."""
    return _digest(str(root), sys.base_prefix, sys.version)


def fingerprint(root: Path, profile: str) -> str:
    with (root / "pyproject.toml").open("rb") as file:
        pyproject = tomllib.load(file)
    # Only the parts that installation reads: a changed lint rule must not reinstall anything.
    installed = [pyproject["project"], pyproject["build-system"], pyproject["tool"].get("hatch")]
    texts = [path.read_text("utf-8") for path in pins(root, profile)]
    return _digest(machine(root), json.dumps(installed, sort_keys=True), *texts)


def read(root: Path) -> dict[str, str]:
    try:
        found = json.loads(_file(root).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def current(root: Path, profile: str) -> bool:
    """Return whether the environment has this profile. The profile DEV includes RUNTIME."""
    # os.access rather than Path: an interpreter in a folder that this user may not read counts as missing.
    if not os.access(python(root), os.X_OK):
        return False
    found = read(root)
    return any(found.get(name) == fingerprint(root, name) for name in {profile, DEV})


def write(root: Path, profile: str) -> None:
    _file(root).write_text(
        json.dumps({"machine": machine(root), profile: fingerprint(root, profile)}), "utf-8"
    )


def forget(root: Path) -> None:
    _file(root).unlink(missing_ok=True)


def _file(root: Path) -> Path:
    return root / ".venv" / "holdfast-stamp.json"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
