"""Names of keys. All keys of a namespace share one hash tag, so that a cluster keeps them on one node."""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID


def part(text: str) -> str:
    """Return a user's text as one part of a key: a colon in it must not look like the next part."""
    return text.replace("%", "%25").replace(":", "%3A") if ":" in text or "%" in text else text


def unpart(text: str) -> str:
    """Return the user's text of a part."""
    return text.replace("%3A", ":").replace("%25", "%") if "%" in text else text


def parted(*texts: str) -> str:
    """Return several texts of users as parts of one name."""
    return ":".join(map(part, texts))


# The same runs and sets are named again and again, by each function that runs anew over a snapshot.
_text = lru_cache(maxsize=8192)(str)


@lru_cache(maxsize=8192)
def _key(tag: str, kind: str, texts: tuple[str, ...]) -> str:
    return f"{tag}:{kind}:{parted(*texts)}"


class Names:
    """The keys of one namespace. docs/redis.md says what each holds."""

    def __init__(self, prefix: str) -> None:
        self.tag = f"{{{prefix}}}"
        self.numbers = self("numbers")
        self.trail = self("trail")
        self.channel = self("news")

    def __call__(self, *parts: str) -> str:
        return ":".join((self.tag, *parts))

    def of(self, kind: str, *texts: str) -> str:
        """Return a key that has texts of users in it."""
        return _key(self.tag, kind, texts)

    def run(self, id: UUID | str) -> str:
        return f"{self.tag}:run:{_text(id)}"

    def steps(self, id: UUID | str) -> str:
        return f"{self.tag}:step:{_text(id)}"

    def trail_of(self, id: UUID | str) -> str:
        return f"{self.tag}:trail:{_text(id)}"

    def event(self, tenant: str, id: str) -> str:
        return self.of("event", tenant, id)

    def waits(self, tenant: str, topic: str) -> str:
        """Waits on a topic, as `<run>:<step>`."""
        return self.of("suspended:topic", tenant, topic)
