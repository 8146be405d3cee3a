"""Calls of programs, for the tests of the tools."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def call(*argv: str | Path, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, argv)), input=stdin, env=os.environ | env, capture_output=True, text=True, check=False
    )
