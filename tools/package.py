"""The command `./hf package`: builds the sdist and the wheel into dist/, and tests them.

The wheel is built twice, from the checkout and from the unpacked sdist, and both must be the same. The tests
in the sdist must be importable. The wheel is then installed into empty environments: without an extra, with
each extra, and beside pytest. In each of them `tests/packaging/smoke.py` runs. `--python PATH` names another
interpreter for these environments and may be repeated.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import install, tidy

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SMOKE = ROOT / "tests" / "packaging" / "smoke.py"
PACKAGE = "src/holdfast/"
NO_EXTRA = "no extra"
PYTEST = "pytest"


class PackageError(Exception):
    """A built file is wrong, or does not work where it was installed."""


@dataclass(frozen=True)
class Environment:
    """One empty environment: its name, and the requirements that are installed in it."""

    name: str
    extra: str = ""
    also: tuple[str, ...] = ()

    def requirements(self, wheel: Path) -> list[str]:
        extras = f"[{self.extra}]" if self.extra else ""
        return [f"holdfast{extras} @ {wheel.as_uri()}", *self.also]


def environments(pyproject: Path) -> list[Environment]:
    """Return the environments to test in: the extras are the ones that pyproject.toml declares."""
    declared = tomllib.loads(pyproject.read_text("utf-8"))["project"].get("optional-dependencies", {})
    extras = [Environment(extra, extra) for extra in sorted(declared)]
    return [Environment(NO_EXTRA), *extras, Environment(PYTEST, also=("pytest",))]


def build(source: Path, into: Path, *targets: str) -> list[Path]:
    """Build with the pinned backend of this environment: nothing is downloaded."""
    into.mkdir(parents=True, exist_ok=True)
    wanted = [word for target in targets for word in ("-t", target)]
    _run([sys.executable, "-m", "hatchling", "build", "-d", str(into), *wanted], source)
    return sorted(into.iterdir())


def unpack(sdist: Path, into: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    [folder] = into.iterdir()
    return folder


def lacking(expected: Iterable[str], present: Iterable[str], where: str) -> list[str]:
    """Return one line for each file that should be in an archive and is not."""
    return [f"{where} lacks {name}" for name in sorted(set(expected) - set(present))]


def different_files(first: Path, second: Path) -> list[str]:
    """Return the names of files that two wheels do not share byte for byte."""
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        contents = [{name: archive.read(name) for name in archive.namelist()} for archive in (one, other)]
    names = sorted({*contents[0], *contents[1]})
    return [name for name in names if contents[0].get(name) != contents[1].get(name)]


def wrong_contents(root: Path, unpacked: Path, wheel: Path) -> list[str]:
    """Return what is wrong with the file lists of an sdist and a wheel of this checkout.

    An sdist has every file of the repository, so that its tests can run. A wheel has the package alone.
    """
    names = {path.relative_to(root).as_posix() for path in tidy.files(root)}
    package = {name.removeprefix("src/") for name in names if name.startswith(PACKAGE)}
    packed = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        installed = {name for name in archive.namelist() if ".dist-info/" not in name}
    return [
        *lacking(names, packed, "the sdist"),
        *lacking(package, installed, "the wheel"),
        *(f"the wheel has {name}, which is not of the package" for name in sorted(installed - package)),
    ]


def collect_tests(unpacked: Path) -> None:
    """Import every test of an unpacked sdist, with the package of that sdist."""
    # A path here comes before the one of the checkout, which is installed in this environment.
    env = _clean_env() | {"PYTHONPATH": str(unpacked / "src")}
    quiet = ["-qqq", "-p", "no:cacheprovider"]
    _run([sys.executable, "-m", "pytest", "--collect-only", *quiet], unpacked, env)


def try_out(environment: Environment, wheel: Path, python: str, folder: Path) -> None:
    """Install the wheel into an empty environment, and run the smoke program there."""
    uv, env = install.find_uv(ROOT), install.uv_env(ROOT)
    place = folder / "venv"
    _run([uv, "venv", "--quiet", "--python", python, str(place)], folder, env)
    # Constraints, not requirements: the metadata of the wheel decides what is installed.
    pinned = ["--constraint", str(ROOT / "requirements" / "dev.txt"), "--no-build"]
    target = ["--quiet", "--python", str(place / "bin" / "python")]
    _run([uv, "pip", "install", *target, *pinned, *environment.requirements(wheel)], folder, env)
    _run([uv, "pip", "check", *target], folder, env)
    work = folder / "work"
    work.mkdir()
    # -I: neither the checkout nor a variable like PYTHONPATH can lend what the wheel lacks.
    _run([str(place / "bin" / "python"), "-I", str(SMOKE), environment.name], work, _clean_env())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./hf package", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--python", action="append", metavar="PATH", help="an interpreter to install into")
    pythons = parser.parse_args(arguments).python or [install.BASE_PYTHON]
    try:
        with tempfile.TemporaryDirectory(prefix="hf-package-") as folder:
            _test(Path(folder), pythons)
    except PackageError as error:
        print(f"hf package: {error}", file=sys.stderr)
        return 1
    return 0


def _test(folder: Path, pythons: Sequence[str]) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    [wheel, sdist] = build(ROOT, DIST, "sdist", "wheel")
    print(f"built dist/{sdist.name} and dist/{wheel.name}", flush=True)
    unpacked = unpack(sdist, folder / "sdist")
    [again] = build(unpacked, folder / "wheel", "wheel")
    wrong = wrong_contents(ROOT, unpacked, wheel)
    wrong += [f"the wheel of the sdist differs in {name}" for name in different_files(wheel, again)]
    if wrong:
        raise PackageError("\n".join(wrong))
    print("ok  the sdist has every file, and its wheel is the same", flush=True)
    collect_tests(unpacked)
    print("ok  the tests of the sdist can be collected", flush=True)
    for number, python in enumerate(pythons):
        version = _run([python, "-c", "import platform; print(platform.python_version())"], folder).strip()
        for environment in environments(ROOT / "pyproject.toml"):
            began = time.monotonic()
            own = folder / f"{number} {environment.name}"
            own.mkdir()
            try_out(environment, wheel, python, own)
            seconds = time.monotonic() - began
            print(f"ok  Python {version}, {environment.name}: {seconds:.1f} s", flush=True)


def _clean_env() -> dict[str, str]:
    """Return the environment without this project's variables and without the paths of Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}


def _run(argv: Sequence[str], cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise PackageError(f"`{' '.join(argv)}` ended with {done.returncode}:\n{done.stdout.strip()}")
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
