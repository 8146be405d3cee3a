"""The commands behind `./hf`: makes sure the environment is there, then becomes the command.

Runs on a bare Python >= 3.11, so it may import nothing but the standard library. When there is
nothing to install it must cost next to nothing: it compares one stamp and goes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Started as a script, so that `./hf` works from any folder: the package has to be found by hand.
sys.path.insert(0, str(ROOT))

from tools import stamp  # noqa: E402 - after the path


@dataclass(frozen=True)
class Command:
    """One word after `./hf`."""

    help: str
    profile: str | None  # which pins it needs; None: no environment at all
    argv: tuple[str, ...] = ()  # the first is a program of the environment
    at_root: bool = True  # False: relative paths in its arguments are the caller's
    alone: tuple[str, ...] = ()  # the arguments where none are given


COMMANDS = {
    "demo": Command(
        "see a workflow survive a killed process", stamp.RUNTIME, ("holdfast", "demo"), at_root=False
    ),
    "test": Command(
        "run the tests, on two cores (arguments go to pytest)",
        stamp.DEV,
        ("python", "-m", "pytest"),
        alone=("-n", "2"),
    ),
    "check": Command(
        "lint, types, layers, generated docs, spec coverage", stamp.DEV, ("python", "-m", "tools.check")
    ),
    "fmt": Command("format the code, mend what lint can mend", stamp.DEV, ("python", "-m", "tools.fmt")),
    "docs": Command("write the generated pages of docs/reference", stamp.DEV, ("python", "-m", "tools.docs")),
    "bench": Command("measure speed against the bare limit", stamp.DEV, ("python", "-m", "bench")),
    "verify": Command("kill, crash and sabotage it on purpose", stamp.DEV, ("python", "-m", "verify")),
    "pins": Command("resolve requirements/*.txt anew (--upgrade for newer versions)", None),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: ./hf COMMAND [ARGUMENTS]", "", *lines])


def become(command: Command, arguments: Sequence[str]) -> int:
    """Replace this process, so that signals and the exit code are the command's own."""
    program = ROOT / ".venv" / "bin" / command.argv[0]
    if command.at_root:
        os.chdir(ROOT)
    sys.stdout.flush()
    os.execv(program, [str(program), *command.argv[1:], *arguments])


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
    return become(command, arguments or command.alone)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"hf: {error.filename or ''}: {error.strerror or error}")
