"""The go command for tests of the Go clients: no module is downloaded, and each program is built once."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from servers import debian, golang
from servers.plugin import missing
from servers.private import ServerError
from tests.clients import kit

LIB_PQ = "github.com/lib/pq"
REMEDY = "apt-get install golang-go golang-github-lib-pq-dev"


class Go:
    """The go command in the folder of one module; programs are kept from one test run to the next."""

    def __init__(self, module: str | Path, built: Path, env: Mapping[str, str] | None = None) -> None:
        try:
            self._programs = golang.find(built)
        except ServerError as error:
            missing(str(error), "CI")
        self._module, self._built, self._env = kit.CLIENTS / module, built, env or {}

    def __call__(self, *arguments: str) -> str:
        """Run go and return its output. A failure is one of the test."""
        return golang.run(self._programs, self._module, self._env, *arguments)

    def build(self, name: str, *options: str) -> Path:
        """Return the path of a program of the module."""
        return golang.built(self._programs, self._module, name, self._built, options, self._env)

    def unformatted(self) -> str:
        """Return the names of files that gofmt would change."""
        gofmt = self._programs / "gofmt"
        return subprocess.run([gofmt, "-l", self._module], capture_output=True, text=True, check=True).stdout


def with_debian_packages(module: str, folder: Path) -> dict[str, str]:
    """Return the variables with which go finds the modules that a module needs in Debian's packages.

    The sources are those of the installed package, else of the package unpacked. The list of places is a file
    in this folder: no path of a machine stands in the module itself.
    """
    source = Path("/usr/share/gocode/src")
    if not (source / LIB_PQ).is_dir():
        try:
            source = debian.unpacked("golang-github-lib-pq-dev", folder) / "usr/share/gocode/src"
        except (ServerError, OSError) as error:
            missing(f"there is no lib/pq for Go ({error}): {REMEDY}", "CI")
    places = folder / "go.mod"
    written = (kit.CLIENTS / module / "go.mod").read_text("utf-8")
    places.write_text(f"{written}\nreplace {LIB_PQ} => {source / LIB_PQ}\n", "utf-8")
    return {"GOFLAGS": f"-mod=mod -modfile={places}"}
