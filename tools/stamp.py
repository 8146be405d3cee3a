"""What the environment was made from. It is made anew only when one of these changed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
from pathlib import Path

RUNTIME = "runtime"
DEV = "dev"

# The build pins go into the environment itself: installing the checkout then downloads nothing.
PINS = {RUNTIME: ("runtime.txt", "build.txt"), DEV: ("dev.txt",)}


def pins(root: Path, profile: str) -> list[Path]:
    return [root / "requirements" / name for name in PINS[profile]]


def python(root: Path) -> Path:
    return root / ".venv" / "bin" / "python"


def machine(root: Path) -> str:
    """The interpreter and the place: a moved checkout has scripts that point to the old one."""
    return _digest(str(root), sys.base_prefix, sys.version)


def fingerprint(root: Path, profile: str) -> str:
    with (root / "pyproject.toml").open("rb") as file:
        pyproject = tomllib.load(file)
    # Only what installation reads: a changed lint rule must not reinstall anything.
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
    """Whether the environment offers this profile; the larger one offers the smaller."""
    # os.path rather than Path: an interpreter in a folder closed to this user is simply absent.
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
