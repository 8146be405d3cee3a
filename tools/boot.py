"""The commands of `./hf`: makes the environment where it is missing, then starts the command in it.

This module runs on a Python >= 3.11 without packages, so it imports the standard library only. It must be
fast when nothing has to be installed: it then compares one stamp.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# `./hf` starts this file as a script from any folder, and Python does not find the package by itself.
sys.path.insert(0, str(ROOT))

from tools import stamp  # noqa: E402 - needs the path above


@dataclass(frozen=True)
class Command:
    """One word after `./hf`."""

    help: str
    profile: str | None  # the pins that it needs; None: it needs no environment
    argv: tuple[str, ...] = ()  # the first word is a program of the environment
    at_root: bool = True  # False: it runs in the folder of the caller, for relative paths in its arguments


COMMANDS = {
    "demo": Command(
        "see a workflow survive a killed process", stamp.RUNTIME, ("holdfast", "demo"), at_root=False
    ),
    "test": Command(
        "run the tests: --quick 2 minutes, alone 10, --all 2 hours (other arguments go to pytest)",
        stamp.DEV,
        ("python", "-m", "tools.run_tests"),
    ),
    "check": Command(
        "lint, types, layers, generated docs, spec coverage", stamp.DEV, ("python", "-m", "tools.check")
    ),
    "fmt": Command(
        "format the code and fix lint errors that can be fixed", stamp.DEV, ("python", "-m", "tools.fmt")
    ),
    "docs": Command(
        "write the generated pages, build the site (--serve: and show it)",
        stamp.DEV,
        ("python", "-m", "tools.docs"),
    ),
    "screenshots": Command(
        "make the pictures of the pages for the docs (--all FOLDER: each page, three widths, light and dark)",
        stamp.DEV,
        ("python", "-m", "tools.screenshots"),
    ),
    "bench": Command("measure speed against the bare limit", stamp.DEV, ("python", "-m", "bench")),
    "verify": Command(
        "kill processes, crash and sabotage the stores on purpose, and check the results",
        stamp.DEV,
        ("python", "-m", "verify"),
    ),
    "package": Command(
        "build the sdist and the wheel into dist/, and test them in empty environments",
        stamp.DEV,
        ("python", "-m", "tools.package"),
    ),
    "pins": Command("resolve requirements/*.txt anew (--upgrade for newer versions)", None),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: ./hf COMMAND [ARGUMENTS]", "", *lines])


def become(command: Command, arguments: Sequence[str]) -> int:
    """Replace this process, so that signals and the exit code are those of the command."""
    program = ROOT / ".venv" / "bin" / command.argv[0]
    if command.at_root:
        os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(program, [str(program), *command.argv[1:], *arguments], environment(os.environ))


def environment(of_caller: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a command. Its processes keep the modules that they compile.

    Containers often set PYTHONDONTWRITEBYTECODE. Then each of the many processes of the tests would compile
    all modules again. The bytecode is in .venv, so nothing is written beside the sources.
    """
    variables = dict(of_caller)
    if variables.pop("PYTHONDONTWRITEBYTECODE", None):
        variables.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".venv" / "bytecode"))
    return variables


def main(argv: Sequence[str]) -> int:
    if not argv or argv[0] in {"help", "-h", "--help"}:
        print(usage())
        return 0
    name, *arguments = argv
    if name not in COMMANDS:
        print(f"hf: no command {name!r}; `./hf` alone lists them", file=sys.stderr)
        return 2
    command = COMMANDS[name]
    if command.profile is None:
        from tools import pins

        return pins.write(ROOT, arguments)
    if not stamp.current(ROOT, command.profile):
        from tools import install

        install.environment(ROOT, command.profile)
    return become(command, arguments)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"hf: {error.filename or ''}: {error.strerror or error}")
