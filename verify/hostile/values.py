"""Hostile text, JSON and numbers: the same seed makes the same values."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from holdfast.bounds import VALUE_BYTES
from holdfast.codec import RESERVED
from verify.environment.cli_reader import FORGED

T = TypeVar("T")

# Text that controls a terminal, forges a line, changes the direction of text, or is a name of Holdfast.
TEXTS = (
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[1;1H",
    "\x1b[7;5mloud\x1b[48;5;9m",
    "\x9b31m\x9d0;owned\x9c",
    f"one\n{FORGED} two",
    f"one\r{FORGED} two",
    f"one\r\n{FORGED} 12:00:00 ERROR two",
    f"one\x0b\x0c\x1c\x85\u2028\u2029{FORGED}",
    "\x7f\x08\x08\x08rubbed out",
    "\u202eright to left\u202c \u2066isolated",
    "\u200b\ufeff\u00ad",
    "%s %(message)s {0} {x!r} $1 ${HOME}",
    "'; drop table workflow.workflow_run; --",
    '"\\"\\\\',
    "\ufffe\uffff\U0010ffff",
    "🦑" * 90,
    "e\u0301\u0300" * 80,
    "",
    " ",
    "default",
    "null",
    "a\tb",
    "\x1funit",
    "-1",
    "Traceback (most recent call last):",
)
# JSON as user SQL can send it. Some of it is invalid.
JSONS = (
    r'"\ud800"',
    r'"\udc00\ud800"',
    r'"\u0000"',
    r'{"\u0000": 1}',
    r'{"\ud800": 1}',
    "1e400",
    "-1e400",
    "1e-400",
    "1" * 400,
    "-0",
    "0.1" + "0" * 300 + "1",
    "NaN",
    "Infinity",
    "{",
    "",
    " ",
    "[1,]",
    '{"a":1,"a":2}',
    "'x'",
    '"\x01"',
    "true",
    "null",
    "[]",
    "{}",
    "[null]",
    '{"done":"abc"}',
    '{"done":1e400}',
    '{"done":[1]}',
    "[1]",
    '"x"',
    '{"done":-1,"total":0}',
    '{"done":1,"total":1e308,"note":7}',
    '{"kind":1}',
    '{"kind":"fatal"}',
    '{"message":[]}',
    '{"kind":null,"message":null}',
    '{"step":7,"attempt":"x","worker":[]}',
    '{"message":{"a":1},"level":7}',
    '{"error":7}',
    '{"by":{"x":1}}',
    '{"status":"no such"}',
    '{"at":1e400}',
    '{"at":"x","fence":"y","attempt":null}',
    r'"\u001b[2J"',
    r'{"message":"\u001b]0;x\u0007\n' + FORGED + r'","level":"\u009b"}',
    r'{"worker":"\u001b[2J\n' + FORGED + r'"}',
    '{"kind":"fatal","message":"\\u001b[2J","traceback":"\\u009b\\n\\u2028"}',
    '{"' + RESERVED + '":{"v":1,"by":["aes:\\u001b[2J\\n' + FORGED + '"],"data":"AAAA"}}',
    '{"' + RESERVED + '":{"v":99,"by":[],"data":"AAAA"}}',
    '{"' + RESERVED + '":[]}',
    '{"' + RESERVED + '":1} ',
    '{"' + RESERVED + '":{"v":1,"by":["zlib"],"data":"!!"}}',
)
NUMBERS = (0, 1, -1, 2, 7, 100, 999, 1000, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
ODD_NUMBERS: tuple[Any, ...] = (
    0.5,
    -0.0,
    1e-9,
    1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
    10**40,
    True,
    None,
    "7",
    [],
    {},
)
TIMES = (
    "now", "-infinity", "infinity", "1970-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "294276-12-31",
    "4713-01-01 BC", "2000-02-30", "", "tomorrow", "now + 1",
)  # fmt: skip
HUGE_SHARE = 0.004
KEPT_SEEDS = (7, 21, 33, 44)  # each has found a bug: they come first, whatever the seed of today is
KEPT_VALUES = 300  # statements of each


def seeds(seed: int) -> Iterator[int]:
    """Return the seed of each statement in turn."""
    for kept in KEPT_SEEDS:
        yield from itertools.repeat(kept, KEPT_VALUES)
    yield from itertools.repeat(seed)


class HostileValues:
    """A random source of hostile values."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def one(self, among: Sequence[T]) -> T:
        return self.dice.choice(among)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def either(self, *makers: Callable[[], Any]) -> Any:
        return self.one(makers)()

    def text(self) -> str:
        said = self.one(TEXTS)
        if self.chance(0.1):
            said += self.one(TEXTS) * self.one([2, 30, 300])
        return said

    def name(self) -> str:
        """Return a name, most often a legal one: otherwise few statements would pass the first check."""
        return self.one([f"n{self.dice.randrange(20)}", self.text().strip() or "n", self.text()])

    def json(self) -> str:
        """Return JSON text, sometimes invalid."""
        if self.chance(HUGE_SHARE):
            return self.huge()
        if self.chance(0.05):
            return self.deep()
        if self.chance(0.3):
            return json.dumps(
                {self.text(): self.text(), "message": self.text()}, ensure_ascii=self.chance(0.5)
            )
        return self.one(JSONS)

    def deep(self) -> str:
        levels = self.one([63, 64, 65, 200, 1_000, 5_000, 10_000])
        opening, closing = self.one([("[", "]"), ('{"a":', "}"), ('[{"a":', "}]"), ("[", "")])
        return opening * levels + "1" * (opening[0] != "[") + closing * levels

    def huge(self) -> str:
        size = self.one([VALUE_BYTES - 2, VALUE_BYTES, VALUE_BYTES + 1, 3 * VALUE_BYTES])
        return self.one(
            [
                '"' + "x" * size + '"',
                '"' + '\\"' * (size // 2) + '"',
                '"' + "\\u001b" * (size // 6) + '"',
                "[" + "1," * (size // 4) + "1]",
                "[" + "[]," * (size // 6) + "[]]",
                "{" + ",".join(f'"k{n}":{n}' for n in range(size // 40)) + "}",
            ]
        )

    def number(self) -> Any:
        return self.one(NUMBERS) if self.chance(0.6) else self.one(ODD_NUMBERS)

    def whole(self) -> int:
        return self.one(NUMBERS)

    def time(self) -> str:
        return self.one(TIMES)

    def uuid(self) -> UUID:
        return UUID(int=self.dice.getrandbits(128), version=4)

    def any(self) -> Any:
        """Return a value of any kind, for a field of another kind."""
        return self.either(
            self.text, self.json, self.number, lambda: [self.text()], lambda: {self.text(): None}
        )

    def value(self) -> Any:
        """Return a Python value: text, numbers, containers, and objects that JSON does not have."""
        made = self.any()
        if self.chance(0.05):
            made = b"\xff" if self.chance(0.5) else object()
        if self.chance(0.1):
            for _ in range(self.one([1, 70, 2_000])):
                made = [made]
        return made

    def record(self, **fields: Callable[[], Any]) -> dict[str, Any]:
        """Return a record with the named fields. One field in five is missing, null, or of another kind."""
        made: dict[str, Any] = {}
        for name, maker in fields.items():
            if self.chance(0.85):
                made[name] = maker()
            elif self.chance(0.7):
                made[name] = self.any()
        if self.chance(0.05):
            made[self.text()] = self.any()
        return made

    def sent(self, record: Any) -> str:
        """Return a record as JSON for a function; now and then another text."""
        if self.chance(0.06):
            return self.json()
        return json.dumps(record, ensure_ascii=self.chance(0.5), default=str)
