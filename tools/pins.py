"""The command `./hf pins`: resolves requirements/*.in into versions and hashes, without registry hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools import install

# One resolution serves every platform and every Python from this version on.
OLDEST_PYTHON = "3.11"

OPTIONS = (
    *("--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes"),
    # Comments in the output would name paths of the machine that wrote them.
    *("--no-header", "--no-annotate"),
    *("--no-emit-index-url", "--no-build", "--quiet"),
)

# The order matters: developers have to test with the same versions that users get.
FILES: dict[str, tuple[str, ...]] = {
    "uv": (),
    "runtime": (),
    "build": (),
    "dev": ("-c", "runtime.txt", "-c", "build.txt"),
}


def write(root: Path, arguments: Sequence[str]) -> int:
    folder = root / "requirements"
    uv = install.find_uv(root)
    env = install.uv_env(root)
    for name, constraints in FILES.items():
        compile_ = [uv, "pip", "compile", "--directory", str(folder), *OPTIONS, *constraints]
        install.run([*compile_, f"{name}.in", "-o", f"{name}.txt", *arguments], env, f"resolving {name}.in")
        install.say(f"requirements/{name}.txt: {install.count([str(folder / f'{name}.txt')])} packages")
    return 0
