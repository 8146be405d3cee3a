"""A snapshot: what one verb has read, and the changes that it makes.

A verb is a function over a snapshot. When it needs something that was not read yet, it is ended by `Missing`,
the store reads that, and the function runs again from its beginning. So it may not change anything but the
snapshot. At the end the script save.lua applies all changes, if what was read is still the same.

**Read a guard before its data, or as its data.** Others write between two round trips, and also between two
commands of one pipeline: a pipeline is not a transaction. A guard that is read after the data may already
have the new answer, and lets a decision pass that was made by the old data. So either the guard is the
command that was decided by (`guarded`), or one command answers both (the fields of a run and its `rev`), or
the guard goes first in the list of commands (the revision of the limits, before the limits).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from holdfast.records import Instant

from .batches import packed
from .names import Names

A = TypeVar("A")
B = TypeVar("B")
Command = tuple[Any, ...]
Answer = Any
NOW: Command = ("TIME",)


class Missing(Exception):
    """The verb needs answers that were not read yet."""


class Group:
    """Changes that are applied together, and what must hold for it."""

    __slots__ = ("added", "entered", "guards", "happened", "left", "operations", "seen")

    def __init__(self) -> None:
        self.guards: dict[Command, str] = {}
        self.operations: list[tuple[Any, ...]] = []
        self.entered: dict[str, list[str]] = {}  # by set: scores and members that enter it
        self.left: dict[str, list[str]] = {}  # by set: members that leave it
        self.seen: set[tuple[Any, ...]] = set()
        self.happened: Counter[tuple[Any, ...]] = Counter()
        self.added: Counter[tuple[str, str, str]] = Counter()  # by command, key, and member or field

    @property
    def is_changed(self) -> bool:
        return bool(self.operations or self.entered or self.left or self.added)

    def guard(self, command: Command, answer: Answer) -> None:
        """Let the changes be applied only if the command still has this answer."""
        said = ",".join(answer) if isinstance(answer, list) else "" if answer is None else str(answer)
        self.guards.setdefault(command, said)


class Snapshot:
    """Answers to commands, guards and changes of one verb. `clock`: the clock of a test."""

    def __init__(self, names: Names, clock: Callable[[], Instant] | None = None) -> None:
        self.names = names
        self._clock = clock
        self._epoch_of: Command = ("HGET", names.numbers, "epoch")
        self._answers: dict[Command, Answer] = {}
        self._decoded: dict[Any, Any] = {}
        self.begin()

    # Reads.

    def begin(self) -> None:
        """Forget the changes of a function that runs again. The first read asks for clock and epoch, too."""
        first = (self._epoch_of, *(() if self._clock is not None else (NOW,)))
        self.wanted: list[Command] = [one for one in first if one not in self._answers]
        self.groups: list[Group] = [Group()]
        self.is_news = self.calls_holders = False

    def learn(self, commands: Sequence[Command], answers: Sequence[Answer]) -> None:
        self._answers.update(zip(commands, answers, strict=True))

    @property
    def now(self) -> Instant:
        """The store's clock: that of the server."""
        if self._clock is not None:
            return self._clock()
        seconds, micros = self.read(*NOW)
        return int(seconds) * 1_000_000 + int(micros)

    def read(self, *command: Any) -> Answer:
        """Return the answer to a command."""
        try:
            return self._answers[command]
        except KeyError:
            self.wanted.append(command)
            raise Missing from None

    @property
    def epoch(self) -> int:
        """The number that all fences of this server process are above: see scripts/epoch.lua."""
        return int(cast("str | None", self.read(*self._epoch_of)) or 0)

    def decoded(self, key: Any, decode: Callable[[], B]) -> B:
        """Return what was decoded from an answer, also when the function runs again. Nobody may change it."""
        try:
            found: B = self._decoded[key]
        except KeyError:
            found = self._decoded[key] = decode()
        return found

    def all(self, commands: Iterable[Command]) -> list[Answer]:
        """Return the answers to several commands, which are read in one round trip."""
        asked = list(commands)
        missing = [command for command in dict.fromkeys(asked) if command not in self._answers]
        if missing:
            self.wanted += missing
            raise Missing
        return [self._answers[command] for command in asked]

    def prefetch(self, commands: Iterable[Command]) -> None:
        """Read these commands now, together, because they will be needed."""
        self.all(commands)

    def each(self, items: Iterable[A], do: Callable[[A], B]) -> list[B]:
        """Return what `do` says about each item. What several of them miss is read in one round trip.

        After the first miss the others run on, only to learn what they need; all run again afterwards. Their
        answers, their errors and their changes do not count then.
        """
        answers: list[B] = []
        is_missing = False
        for item in items:
            try:
                answers.append(do(item))
            except Missing:
                is_missing = True
            except Exception:
                if not is_missing:
                    raise
        if is_missing:
            raise Missing
        return answers

    # Changes.

    @property
    def group(self) -> Group:
        """The group that is being filled."""
        return self.groups[-1]

    def new_group(self) -> None:
        if self.group.is_changed or self.group.guards:
            self.groups.append(Group())

    def guard(self, command: Command, answer: Answer) -> None:
        """Let the changes of this group be applied only if the command still has this answer."""
        self.group.guard(command, answer)

    def unguard(self, key: str) -> None:
        """Let the changes not depend on a key any more."""
        for command in [one for one in self.group.guards if one[1] == key]:
            del self.group.guards[command]

    def guarded(self, *command: Any) -> Answer:
        """Return the answer to a command, which must still be the same when the changes are applied."""
        answer = self.read(*command)
        self.guard(command, answer)
        return answer

    # An operation is a tuple: its name and its key, if it has one, go first. Numbers are sent as text: the
    # script would round large ones.

    def do(self, command: str, key: str, *words: Any) -> None:
        self.group.operations.append(("C", key, command, _texts(words)))

    def enter(self, key: str, score: int, member: str) -> None:
        """Put a member into a set. A snapshot changes each member of a set at most once."""
        self.group.entered.setdefault(key, []).extend((str(score), member))

    def leave(self, key: str, member: str) -> None:
        self.group.left.setdefault(key, []).append(member)

    def do_once(self, command: str, key: str, *words: Any) -> None:
        """Do a command that has no further effect when it is done again."""
        if (command, key, *words) not in self.group.seen:
            self.group.seen.add((command, key, *words))
            self.do(command, key, *words)

    def add(self, command: str, key: str, name: str, by: int) -> None:
        """Add to the score of a member (ZINCRBY), or to a field (HINCRBY). Sums are sent, one for each."""
        self.group.added[command, key, name] += by

    def moved(self, id: str, tenant: str, kind: str, before: str, after: str) -> None:
        self.group.operations.append(("M", None, id, tenant, kind, before, after))

    def happened(self, tenant: str, kind: str, what: str, minute: Instant) -> None:
        self.group.happened[tenant, kind, what, minute] += 1

    def log(self, counter: str, key: str, row: str, other: str | None = None, note: str = "") -> None:
        self.group.operations.append(("L", key, counter, row, other, note))

    def number(self, counter: str, key: str | None, field: str, member: str, *sets: str) -> None:
        self.group.operations.append(("N", key, counter, field, member, sets))

    def writes(self, key: str, before: str, after: str) -> None:
        self.group.operations.append(("W", key, before, after))

    def fence(self, key: str, above: int) -> None:
        self.group.operations.append(("F", key, above))

    @property
    def is_changed(self) -> bool:
        return any(group.is_changed for group in self.groups)

    def packed(self) -> tuple[list[str], list[Any]]:
        """Return KEYS and ARGV of save.lua."""
        keys = {self.names.numbers: 1, self.names.trail: 2, self.names.channel: 3}

        def place(key: str | None) -> int:
            return 0 if key is None else keys.setdefault(key, len(keys) + 1)

        groups = [group for group in self.groups if group.is_changed]
        self._depend_on_epoch(groups)
        if self.is_news or self.calls_holders:
            word = "holders" if self.calls_holders else "work"
            groups[-1].operations.append(("C", self.names.channel, "PUBLISH", (word,)))
        said = []
        for group in groups:
            guards = [
                (command, place(key), _texts(words), answer)
                for (command, key, *words), answer in group.guards.items()
            ]
            operations = [_placed(one, place) for one in group.operations]
            operations += [("+", place(key), words) for key, words in group.entered.items()]
            operations += [("-", place(key), members) for key, members in group.left.items()]
            for (command, key, name), by in group.added.items():
                words = (str(by), name) if command == "ZINCRBY" else (name, str(by))
                operations += [("C", place(key), command, words)] if by else []
                if command == "ZINCRBY" and by < 0:
                    operations.append(("C", place(key), "ZREMRANGEBYSCORE", ("-inf", "0")))
            for (tenant, kind, what, minute), number in group.happened.items():
                operations.append(("H", 0, tenant, kind, what, str(minute), number))
            said.append((guards, operations))
        return list(keys), [0, 0, packed(said)]  # the changes have their times already

    def _depend_on_epoch(self, groups: Iterable[Group]) -> None:
        """Let no change be applied by another server process than the one that was read from. It may have
        lost writes: then the same `rev` may stand for another state of a run."""
        if self._epoch_of in self._answers:
            known = self._answers[self._epoch_of] or ""
            for group in groups:
                group.guards.setdefault(self._epoch_of, known)

    def counter(self, name: str) -> int:
        """Return the highest number that was given so far."""
        return int(cast("str | None", self.read("HGET", self.names.numbers, name)) or 0)


def _texts(words: Iterable[Any]) -> list[str]:
    return [word if isinstance(word, str) else str(word) for word in words]


def _placed(operation: tuple[Any, ...], place: Callable[[str | None], int]) -> tuple[Any, ...]:
    """Return an operation as save.lua reads it: with places of keys."""
    name, key, *words = operation
    if name == "L":
        words[2] = place(words[2])
    elif name == "N":
        words[3] = [place(one) for one in words[3]]
    return (name, place(key), *words)
