"""Released schema files never change: databases have run them, and older libraries rely on their numbers."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.stores.postgres import migrate

CHANGELOG = Path(__file__).resolve().parents[4] / "CHANGELOG.md"
BEFORE_POSTGRES = {"0.1.0"}


class Release(NamedTuple):
    """The schema files of a release, and the number and digest of its functions."""

    schemas: tuple[str, ...]
    functions: int
    digest: str


# By version, oldest first; the first test below asks for each line.
RELEASED: dict[str, Release] = {}


def here() -> Release:
    files = tuple(sha256(text.encode()).hexdigest()[:16] for text in migrate.schemas())
    return Release(files, migrate.FUNCTIONS, migrate.digest())


def versions(changelog: str) -> list[str]:
    """The versions of the changelog, oldest first."""
    found = re.findall(r"^## \[(\d[^]]*)\]", changelog, re.MULTILINE)[::-1]
    return [version for version in found if version not in BEFORE_POSTGRES]


def faults(released: dict[str, Release], now: Release) -> list[str]:
    """The differences between now and the releases that are not allowed."""
    found = []
    for version, release in released.items():
        for number, digest in enumerate(release.schemas):
            if now.schemas[number : number + 1] != (digest,):
                file = f"schema/{number + 1:04}.sql"
                found.append(f"{file} is not what {version} brought: leave it, and add the next file")
        if now.digest != release.digest and now.functions <= release.functions:
            found.append(f"functions differ from those of {version}: raise FUNCTIONS in migrate.py")
    return found


@pytest.mark.spec("STORE-5")
def test_every_release_is_kept_in_mind():
    """A version in the changelog needs its line here."""
    missing = [version for version in versions(CHANGELOG.read_text("utf-8")) if version not in RELEASED]
    assert not missing, f'add to RELEASED: "{missing[0]}": {here()}'


@pytest.mark.spec("STORE-5")
def test_what_was_released_is_never_changed():
    """A database stores only numbers: later changes need a new number."""
    assert faults(RELEASED, here()) == []


BEFORE = Release(("a", "b"), 3, "d")


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (BEFORE, []),
        (Release(("a", "b", "c"), 3, "d"), []),
        (Release(("a", "b"), 4, "other"), []),
        (Release(("a", "x"), 3, "d"), ["schema/0002.sql is not what 0.2.0 brought"]),
        (Release(("a",), 3, "d"), ["schema/0002.sql is not what 0.2.0 brought"]),
        (Release(("x", "b", "c"), 4, "d"), ["schema/0001.sql is not what 0.2.0 brought"]),
        (Release(("a", "b"), 3, "other"), ["functions differ from those of 0.2.0: raise FUNCTIONS"]),
        (Release(("a", "b"), 2, "other"), ["functions differ from those of 0.2.0: raise FUNCTIONS"]),
    ],
)
def test_a_change_of_what_was_released_is_found(now, said):
    """In each file, and in functions that keep their number."""
    told = faults({"0.2.0": BEFORE}, now)
    assert [line[: len(words)] for line, words in zip(told, said, strict=True)] == said


def test_versions_are_those_of_the_changelog():
    """Without unreleased versions, and without those before Postgres."""
    assert versions("## [Unreleased]\n\n## [0.3.0]\n## [0.2.0] 2026\n\n## [0.1.0]\n") == ["0.2.0", "0.3.0"]
