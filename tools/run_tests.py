"""The command `./hf test`: pytest with the options of a quick, a full or a complete run.

Without an option of its own it hands all arguments to pytest, so `./hf test -k lease` works.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HELP = """\
usage: ./hf test [--quick | --all] [PYTEST ARGUMENTS]

  ./hf test            every behaviour, on one Postgres and one Redis, on two cores: about 10 minutes
  ./hf test --quick    the tests that are fast and need no server: under 2 minutes
  ./hf test --all      everything that can be tested on this machine: one to two hours
  ./hf test -k lease   all other arguments go to pytest, which then uses one process (add `-n 3` for three)

--quick runs tests of words, codec, machine, engine, command line and docs, and the contract of a store on
memory. It starts no database server and leaves out every test that is marked `slow`.

--all sets HOLDFAST_LAWS=long: 20 times as many random histories, and tests that repeat on another store what
does not depend on the store. It makes a missing tool a failure instead of a skipped test
(HOLDFAST_REQUIRE_PGBOUNCER, CI). Then it runs the tests of the Postgres store once more on each other
Postgres version that it finds on this machine, and those of the Redis store on each other Redis and Valkey,
with the whole contract on a single server and in a cluster.

The options of pytest itself: .venv/bin/pytest --help"""

# One process more than cores: tests that wait for servers and processes leave a core free.
PROCESSES = ("-n", "3")

# `--quick` leaves these out: they need a server, repeat the contract on one more kind of store, or explore
# every crash point.
NOT_QUICK = (
    "tests/engine/code/test_crashes.py",
    "tests/engine/outbox/test_outbox_crashes.py",
    "tests/engine/plans/test_plan_crashes.py",
    "tests/laws",
    "tests/sealing",
    "tests/servers",
    "tests/stores/postgres",
    "tests/stores/redis",
    "tests/stores/sqlite/test_without_fast_paths.py",
    "tests/testing/test_exploring.py",
    "tests/verify",
)
# The contract runs on memory, the reference. The colons keep classes whose names only begin like this one.
NOT_QUICK_CLASSES = ("tests/contract/test_stores.py::TestSqlite::",)

# The tests that `--all` repeats on every other Postgres version, and on every other Redis or Valkey.
POSTGRES_TESTS = "tests/stores/postgres"
REDIS_TESTS = "tests/stores/redis"
COMPLETE = {"HOLDFAST_LAWS": "long", "HOLDFAST_REQUIRE_PGBOUNCER": "1", "CI": "1"}

# pytest's exit code when it collected no test: with `--all -k WORD` a part may have none.
NO_TESTS = 5


class UsageError(Exception):
    """The arguments contradict each other."""


@dataclass(frozen=True)
class Run:
    """One call of pytest."""

    arguments: tuple[str, ...]
    title: str = ""  # printed before the run; empty: nothing is printed
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "pytest", *self.arguments]


def runs(
    arguments: Sequence[str],
    other_versions: Callable[[], Sequence[int]],
    other_servers: Callable[[], Sequence[str]] = tuple,
) -> list[Run]:
    """Return the calls of pytest for these arguments. Other versions of Postgres, other servers of Redis."""
    rest = tuple(word for word in arguments if word not in {"--quick", "--all"})
    if "--quick" in arguments and "--all" in arguments:
        raise UsageError("--quick and --all exclude each other")
    if "--quick" in arguments:
        return [Run((*quick_options(), *rest))]
    if "--all" in arguments:
        return complete(rest, other_versions(), other_servers())
    return [Run(rest or PROCESSES)]


def quick_options() -> tuple[str, ...]:
    left_out = (*(f"--ignore={path}" for path in NOT_QUICK), *(f"--deselect={c}" for c in NOT_QUICK_CLASSES))
    # `-r fE`: the list of tests that were skipped for want of a server is of no use here.
    return (*PROCESSES, "-m", "not slow", "--no-postgres", "--no-redis", *left_out, "-r", "fE")


def complete(
    rest: tuple[str, ...], other_versions: Sequence[int], other_servers: Sequence[str] = ()
) -> list[Run]:
    settings = " ".join(f"{name}={value}" for name, value in COMPLETE.items())
    first = Run((*PROCESSES, *rest), f"all tests, in their long form ({settings})", COMPLETE)
    short = {name: value for name, value in COMPLETE.items() if name != "HOLDFAST_LAWS"}
    postgres = [
        Run(
            (*PROCESSES, f"--postgres-version={version}", POSTGRES_TESTS, *rest),
            f"the tests of the Postgres store on Postgres {version}",
            short,
        )
        for version in other_versions
    ]
    redis = [
        Run(
            (*PROCESSES, f"--redis-server={server}", "--redis-cluster", REDIS_TESTS, *rest),
            f"the tests of the Redis store on {server}",
            short,
        )
        for server in other_servers
    ]
    return [first, *postgres, *redis]


def other_postgres_versions() -> list[int]:
    """Return the Postgres versions of this machine that tests do not use by default."""
    from servers import installs

    found = list(dict.fromkeys(install.version for install in installs.installs()))
    return sorted(found[1:])


def other_redis_servers() -> list[str]:
    """Return the Redis and Valkey servers of this machine that tests do not use by default."""
    from servers import redis_programs

    return redis_programs.labels()[1:]


def follow(planned: Sequence[Run]) -> int:
    """Run all of them, also after a failure, and return the first exit code that is not 0."""
    failed = 0
    for number, run in enumerate(planned, 1):
        print(f"hf test: {number} of {len(planned)}: {run.title}", flush=True)
        code = subprocess.run(run.command(), cwd=ROOT, env=os.environ | run.env, check=False).returncode
        failed = failed or (0 if code == NO_TESTS else code)
    return failed


def become(run: Run) -> int:
    """Replace this process, so that signals and the exit code are pytest's own."""
    os.chdir(ROOT)
    os.execve(sys.executable, run.command(), os.environ | run.env)


def main(arguments: Sequence[str]) -> int:
    if {"-h", "--help"}.intersection(arguments):
        print(HELP)
        return 0
    try:
        planned = runs(arguments, other_postgres_versions, other_redis_servers)
    except UsageError as error:
        print(f"hf test: {error}; `./hf test --help` explains them", file=sys.stderr)
        return 2
    return follow(planned) if "--all" in arguments else become(planned[0])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
