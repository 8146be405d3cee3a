"""Node for tests of the TypeScript client: its tools are installed once, and each state is built once.

Both happen in the folder of the client, in `node_modules` and `dist`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from servers.private import ServerError

FOLDER = Path(__file__).resolve().parent.parent / "clients" / "typescript"
REMEDY = "install Node 20 or later (Debian: apt-get install nodejs npm; macOS: brew install node)"
SOURCES = ("src", "test", "example", "conformance", "tsconfig.json", "package-lock.json")


class TypeScript:
    """The built client. ServerError says how to get what is missing."""

    def __init__(self) -> None:
        self.node = _tool("node")
        self._npm = _tool("npm")
        self._version = self._said([self.node, "--version"]).strip()
        if int(self._version.lstrip("v").partition(".")[0]) < 20:
            raise ServerError(f"node is {self._version}: {REMEDY}")
        with (FOLDER / ".lock").open("w") as lock:  # other processes of pytest build it too
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._build()

    def program(self, name: str) -> list[str]:
        """Return the command of a program, such as conformance/worker."""
        return [self.node, str(FOLDER / "dist" / f"{name}.js")]

    def compiled(self, text: str, folder: Path) -> list[str]:
        """Return the command of a program that imports the client as a package, as a user's program does."""
        package = folder / "node_modules" / "holdfast-worker"
        package.parent.mkdir()
        package.symlink_to(FOLDER)
        (folder / "package.json").write_text('{"type": "module"}')
        (folder / "program.ts").write_text(text, "utf-8")
        types = FOLDER / "node_modules" / "@types"
        options = ["--strict", "--module", "node16", "--target", "es2022", "--types", "node"]
        self._said([*self._tsc, *options, "--typeRoots", str(types), str(folder / "program.ts")])
        return [self.node, str(folder / "program.js")]

    def tested(self) -> None:
        """Run the client's own tests. As Go does, it keeps the verdict of the same sources, but not in CI."""
        passed = FOLDER / "dist" / "passed"
        state = f"{self._version} {(FOLDER / 'dist' / 'state').read_text()}"
        if os.environ.get("CI") or not passed.exists() or passed.read_text() != state:
            files = sorted((FOLDER / "dist" / "test").glob("*.test.js"))
            self._said([self.node, "--test", *map(str, files)])
            passed.write_text(state)

    def _build(self) -> None:
        state = hashlib.sha256(b"".join(path.read_bytes() for path in _files())).hexdigest()
        built = FOLDER / "dist" / "state"
        if built.exists() and built.read_text() == state:
            return
        wanted, installed = FOLDER / "package-lock.json", FOLDER / "node_modules" / "installed.json"
        if not installed.exists() or installed.read_bytes() != wanted.read_bytes():
            self._install()
            installed.write_bytes(wanted.read_bytes())
        self._said(self._tsc)
        built.write_text(state)

    @property
    def _tsc(self) -> list[str]:
        return [self.node, str(FOLDER / "node_modules" / "typescript" / "bin" / "tsc")]

    def _install(self) -> None:
        """Install the compiler. Every package is checked against the hash in the lock file."""
        argv = [self._npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(argv, cwd=FOLDER, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerError(f"npm cannot install the TypeScript compiler: {done.stderr[-500:]}")

    def _said(self, argv: list[str]) -> str:
        done = subprocess.run(argv, cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServerError(f"there is no {name} on PATH: {REMEDY}")
    return found


def _files() -> Iterator[Path]:
    for name in SOURCES:
        path = FOLDER / name
        yield from [path] if path.is_file() else sorted(path.rglob("*.ts"))
