"""Installation of .venv from the pins, with uv, which is downloaded where it is missing.

Every download is checked against a hash in requirements/. An incomplete environment is never used: the stamp
is removed first and written last, under a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools import stamp

# The first uv with all options that are used here; an older uv on PATH is not used.
UV_MIN = (0, 5)

# The interpreter below a virtual environment: .venv may be deleted while this process runs in it.
BASE_PYTHON: str = getattr(sys, "_base_executable", None) or sys.executable

NO_INSTALLER = (
    f"hf: {BASE_PYTHON} has neither pip nor ensurepip, and there is no uv on PATH: "
    "install one of them (Debian: apt install python3-venv)"
)


def say(text: str) -> None:
    print(f"hf: {text}", file=sys.stderr, flush=True)


def environment(root: Path, profile: str) -> None:
    """Install this profile in .venv. Several processes may call it at once."""
    (root / ".boot").mkdir(exist_ok=True)
    with _lock(root / ".boot" / "lock"):
        if stamp.current(root, profile):
            return
        began = time.monotonic()
        _make(root, profile)
        say(f"ready in {time.monotonic() - began:.1f} s")


def _make(root: Path, profile: str) -> None:
    uv = find_uv(root)
    env = uv_env(root)
    before = stamp.read(root)
    if stamp.DEV in before:
        profile = stamp.DEV  # a developer uses this checkout; `./hf demo` must not remove the tools
    complete = stamp.current(root, stamp.RUNTIME)
    stamp.forget(root)
    if before.get("machine") != stamp.machine(root) or not os.access(stamp.python(root), os.X_OK):
        say(f"making .venv with Python {sys.version.split()[0]}")
        shutil.rmtree(root / ".venv", ignore_errors=True)
        run([uv, "venv", "--quiet", "--python", BASE_PYTHON, str(root / ".venv")], env, "making .venv")
    target = ["--quiet", "--python", str(stamp.python(root))]
    files = [str(path) for path in stamp.pins(root, profile)]
    checked = ["--require-hashes", "--no-build"]
    say(f"installing {count(files)} pinned packages")
    if complete:
        # Only add packages: `sync` removes the project for a moment, perhaps below a running demo.
        added = [option for file in files for option in ("-r", file)]
        run([uv, "pip", "install", "--no-deps", *checked, *target, *added], env, "installing")
    else:
        run([uv, "pip", "sync", *checked, *target, *files], env, "installing")
        # Offline and without isolation: the build backend is pinned and already installed.
        project = ["--no-deps", "--no-build-isolation", "--offline", "-e", str(root)]
        run([uv, "pip", "install", *target, *project], env, "installing the project")
    stamp.write(root, profile)


def find_uv(root: Path) -> str:
    found = shutil.which("uv")
    if found and _version(found) >= UV_MIN:
        return found
    pins = root / "requirements" / "uv.txt"
    version = _pinned(pins)
    home = root / ".boot" / f"uv-{version}"
    uv = home / "bin" / "uv"
    if not uv.exists():
        pip = _pip(root)
        say(f"fetching uv {version}")
        # Rename it at the end, so that an interrupted download is not used as the program.
        partial = root / ".boot" / "uv.part"
        shutil.rmtree(partial, ignore_errors=True)
        checked = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(pins)]
        # A user's pip settings may ask for things that exclude --target.
        env = os.environ | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
        run([*pip, "install", "--quiet", "--target", str(partial), *checked], env, "fetching uv")
        partial.rename(home)
    return str(uv)


def uv_env(root: Path) -> dict[str, str]:
    env = dict(os.environ)
    env["UV_PYTHON_DOWNLOADS"] = "never"
    env.pop("UV_PYTHON", None)
    # Behind a proxy of a company the certificates of the system are needed, as pip uses them.
    if ssl.get_default_verify_paths().capath or ssl.get_default_verify_paths().cafile:
        env.setdefault("UV_SYSTEM_CERTS", "true")
        env.setdefault("UV_NATIVE_TLS", "true")
    if "PIP_INDEX_URL" in env and "UV_INDEX_URL" not in env:
        env.setdefault("UV_DEFAULT_INDEX", env["PIP_INDEX_URL"])
    # A service account may have no home folder for a cache.
    cache = Path(env.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    try:
        (cache / "uv").mkdir(parents=True, exist_ok=True)
        usable = os.access(cache / "uv", os.W_OK)
    except OSError:
        usable = False
    if not usable:
        env.setdefault("UV_CACHE_DIR", str(root / ".boot" / "cache"))
    return env


def run(argv: Sequence[str], env: dict[str, str], task: str) -> str:
    """Run a program and return its output. On failure print its last lines and exit with one line."""
    done = subprocess.run(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        print("\n".join(done.stdout.splitlines()[-20:]), file=sys.stderr)
        sys.exit(f"hf: {task} failed; the reason is above")
    return done.stdout


def count(files: Sequence[str]) -> int:
    return sum(len(re.findall(r"^[\w.-]+==", Path(file).read_text("utf-8"), re.MULTILINE)) for file in files)


def _pip(root: Path) -> list[str]:
    if _runs([BASE_PYTHON, "-m", "pip", "--version"]):
        return [BASE_PYTHON, "-m", "pip"]
    home = root / ".boot" / "pip"
    if not _runs([BASE_PYTHON, "-m", "venv", "--clear", str(home)]):
        shutil.rmtree(home, ignore_errors=True)
        sys.exit(NO_INSTALLER)
    return [str(home / "bin" / "python"), "-m", "pip"]


def _runs(argv: Sequence[str]) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _version(uv: str) -> tuple[int, ...]:
    """Return the version, or (0,) for a program that does not run: version managers leave those on PATH."""
    try:
        output = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return (0,)
    numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", output)
    return tuple(map(int, numbers.groups())) if numbers else (0,)


def _pinned(pins: Path) -> str:
    found = re.search(r"^uv==([\w.]+)", pins.read_text("utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"hf: {pins} pins no uv")
    return found[1]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./hf is installing; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
