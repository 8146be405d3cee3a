"""Chromium for tests of the pages: the installed one, or the packages of Debian, unpacked."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import NamedTuple

from servers import debian
from servers.private import ServerError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAYS = "install it (Debian: apt-get install chromium), or name it in HOLDFAST_CHROMIUM"


class Browser(NamedTuple):
    """The program of a browser, and the environment that it needs."""

    program: Path
    environment: dict[str, str]


def find(folder: Path) -> Browser:
    """Return a browser. ServerError says how to get one."""
    if named := os.environ.get("HOLDFAST_CHROMIUM"):
        return Browser(Path(named), {})
    for name in NAMES:
        if (installed := shutil.which(name)) is not None:
            return Browser(Path(installed), {})
    if not debian.available():
        raise ServerError(f"there is no Chromium on PATH: {WAYS}")
    try:
        return _unpacked(folder)
    except (ServerError, OSError) as error:
        raise ServerError(
            f"there is no Chromium on PATH, and Debian's package cannot be had ({error}): {WAYS}"
        ) from None


def _unpacked(folder: Path) -> Browser:
    """Unpack the browser, and the libraries that this machine lacks."""
    root = debian.with_libraries("chromium", folder)
    libraries = root / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
    path = f"{libraries}:{libraries / 'pulseaudio'}"  # a part of libpulse has a folder of its own
    return Browser(root / "usr" / "lib" / "chromium" / "chromium", {"LD_LIBRARY_PATH": path})
