"""Go for tests of the clients in Go: the installed one, or the packages of Debian, unpacked.

Programs are built once for each state of their module, and kept in the cache folder of the user.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from servers import debian
from servers.private import ServerError

WAYS = "install it (Debian: apt-get install golang-go; macOS: brew install go)"
OFFLINE = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}  # no module is downloaded
_REPLACED = re.compile(r"^replace .* => (/.*)$", re.MULTILINE)
BUILT_MAX = 60  # programs that are kept
_VERSION = re.compile(r"Depends: golang-(\d+\.\d+)-go")


def find(folder: Path) -> Path:
    """Return the folder with the programs go and gofmt. ServerError says how to get them."""
    installed = shutil.which("go")
    if installed is not None:
        return Path(installed).parent
    if not debian.available():
        raise ServerError(f"there is no go on PATH: {WAYS}")
    try:
        version = _version()
        root = debian.unpacked(f"golang-{version}-go", folder, (f"golang-{version}-src",))
    except (ServerError, OSError) as error:
        raise ServerError(
            f"there is no go on PATH, and Debian's package cannot be had ({error}): {WAYS}"
        ) from None
    return root / "usr" / "lib" / f"go-{version}" / "bin"


def _version() -> str:
    """Return the version of Go that Debian has."""
    found = _VERSION.search(debian.call(["apt-cache", "depends", "golang-go"]))
    if found is None:
        raise ServerError("Debian's list of packages names no version of Go")
    return found[1]


class BuildError(Exception):
    """The go command failed; the text is what it said."""


def run(go: Path, module: Path, env: Mapping[str, str], *arguments: str) -> str:
    """Run the go command of a folder in a module and return its output. BuildError."""
    done = subprocess.run(
        [go / "go", *arguments],
        cwd=module,
        env={**os.environ, **OFFLINE, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(done.stdout + done.stderr)
    return done.stdout


def built(
    go: Path,
    module: Path,
    name: str,
    folder: Path,
    options: Sequence[str] = (),
    env: Mapping[str, str] = OFFLINE,
) -> Path:
    """Return the path of a program of a module: one that was built from the same sources, or a new one."""
    cache = debian.cache_folder(folder) / "go-programs"
    cache.mkdir(exist_ok=True)
    path = cache / _state(go, module, name, options)
    if not path.exists():
        with (cache / ".lock").open("w") as lock:  # other processes build too
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                partial = path.with_suffix(".partial")
                run(go, module, env, "build", *options, "-o", str(partial), f"./{name}")
                partial.rename(path)
                _forget(cache)
    path.touch()  # it is in use
    return path


def _state(go: Path, module: Path, name: str, options: Sequence[str]) -> str:
    """Return a name for a program that changes with its sources, its options and Go itself."""
    found = sha256("\0".join([str((go / "go").resolve()), name, *options]).encode())
    for folder in (module, *map(Path, _REPLACED.findall((module / "go.mod").read_text("utf-8")))):
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".go", ".mod", ".sum"} and not path.name.endswith("_test.go"):
                found.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return f"{name.replace('/', '-').strip('.') or 'main'}-{found.hexdigest()[:20]}"


def _forget(cache: Path) -> None:
    """Remove the programs that were not used for longest."""
    old = sorted(cache.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
    for path in old[BUILT_MAX:]:
        path.unlink(missing_ok=True)
