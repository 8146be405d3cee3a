"""Programs from Debian's packages, unpacked. This needs no root and installs nothing."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from servers.private import ServerError

DOWNLOAD_SECONDS = 300.0
_INSTALLED = re.compile(r"^Inst (\S+) ", re.MULTILINE)
# Without a network apt would wait for minutes.
QUICK = ("-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::https::Timeout=10")


def available() -> bool:
    """Return whether this machine has the tools of Debian."""
    return bool(shutil.which("apt-get") and shutil.which("dpkg"))


def is_downloaded(name: str, folder: Path) -> bool:
    """Return whether the package files of a program are there."""
    return _cache(name, folder).is_dir()


def _cache(name: str, folder: Path) -> Path:
    return cache_folder(folder) / f"{name}-{platform.freedesktop_os_release().get('VERSION_ID', '')}"


def download(name: str, more: Sequence[str], folder: Path) -> Path:
    """Return the folder with the package files of a program, downloaded once."""
    cache = _cache(name, folder)
    if not cache.is_dir():
        # Rename the folder at the end, so that an incomplete download is not used.
        partial = Path(tempfile.mkdtemp(dir=cache.parent))
        try:
            call(["apt-get", "download", *QUICK, name, *more], cwd=partial)
            keep(partial, cache)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return cache


def unpacked(name: str, folder: Path, more: Sequence[str] = ()) -> Path:
    """Return the folder with the files of a package, and of others, downloaded and unpacked once."""
    packages = download(name, more, folder)
    root = packages / "unpacked"
    if not root.is_dir():
        partial = Path(tempfile.mkdtemp(dir=packages))
        try:
            unpack(packages, partial)
            keep(partial, root)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return root


def with_libraries(name: str, folder: Path) -> Path:
    """Return the folder with the files of a package, and of the packages it needs that are not installed."""
    needed: list[str] = []
    if not is_downloaded(name, folder):  # the plan takes seconds
        needed = _INSTALLED.findall(
            call(["apt-get", "install", "--simulate", "--no-install-recommends", name])
        )
    return unpacked(name, folder, [one for one in needed if one != name])


def unpack(packages: Path, root: Path) -> None:
    """Unpack all package files of a folder into another one."""
    for package in sorted(packages.glob("*.deb")):
        call(["dpkg", "-x", str(package), str(root)])


def keep(partial: Path, cache: Path) -> None:
    """Give a complete folder its name. Another process may have been faster: then that one's folder stays."""
    with contextlib.suppress(OSError):
        partial.rename(cache)


def cache_folder(folder: Path) -> Path:
    """Return the cache folder of the user, or this folder for a user without a home."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    cache = home / "holdfast"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return folder
    return cache if os.access(cache, os.W_OK) else folder


def call(argv: Sequence[str], cwd: Path | None = None) -> str:
    """Run a tool of Debian and return its output."""
    short = " ".join(argv[:2])
    try:
        done = subprocess.run(
            argv, cwd=cwd, capture_output=True, text=True, check=False, timeout=DOWNLOAD_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ServerError(f"`{short}` took more than {DOWNLOAD_SECONDS:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ServerError(f"`{short}` failed ({last})")
    return done.stdout
