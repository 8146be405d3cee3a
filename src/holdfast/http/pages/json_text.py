"""JSON for people: laid out and coloured by the server. Numbers stay as they are stored, however long."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from markupsafe import Markup, escape

from holdfast.escaping import escaped

JSON_MAX = 10_000  # characters of one value on a page
TOKENS_MAX = 2_000  # tokens of one value: each of them takes some 30 characters of the page
OPEN_MAX = 2_000  # a longer value is folded at first
INDENTED = 12  # levels that are indented: each further one would make the page longer by all its lines
# A text that was cut may end inside a string. Such a string is a token too: otherwise the search would begin
# again at each of its quotes, and take time that grows with the square of its length.
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*(?:"|\\?\Z))|(?P<number>-?\d[\d.eE+-]*)'
    r"|(?P<word>true|false|null)|(?P<sign>[\[\]{},:])"
)


def json_html(value: Any, limit: int = JSON_MAX) -> Markup:
    """Return a stored value (JSON as bytes, or `msgspec.Raw`) or plain data as HTML."""
    if isinstance(value, msgspec.Raw | bytes):
        text = bytes(value).decode(errors="replace")
    else:
        text = msgspec.json.encode(value).decode()
    shown, number = _laid_out(text[:limit])
    if number < len(text):
        shown += Markup("…\n<i>{:,} characters, the first {:,} are shown</i>").format(len(text), number)
    if number <= OPEN_MAX:
        return Markup('<pre class="json">{}</pre>').format(shown)
    word = "show all" if number == len(text) else "show the beginning"
    words = Markup("<summary><b>{}</b> <i>{:,} characters</i></summary>").format(word, len(text))
    return Markup('<details class="more">{}<pre class="json">{}</pre></details>').format(words, shown)


def laid_out(text: str) -> Markup:
    """Return JSON text with line breaks, indentation and a class for each kind of token."""
    return _laid_out(text)[0]


def _laid_out(text: str) -> tuple[Markup, int]:
    """Return the laid out beginning of a text, at most TOKENS_MAX tokens, and how many characters it has."""
    parts: list[str] = []
    depth, at, opened, tokens = 0, 0, False, 0
    while tokens < TOKENS_MAX and (found := _TOKEN.search(text, at)):
        at, tokens = found.end(), tokens + 1
        kind, word = found.lastgroup, found.group()
        if kind == "sign" and word in "]}":
            depth = max(0, depth - 1)
            parts.append(word if opened else f"{_line(depth)}{word}")
            opened = False
            continue
        if opened:
            parts.append(_line(depth))
            opened = False
        if kind == "sign":
            if word in "[{":
                depth, opened = depth + 1, True
                parts.append(word)
            else:
                parts.append(": " if word == ":" else f",{_line(depth)}")
        else:
            parts.append(f'<span class="j-{kind}">{escape(escaped(word, None))}</span>')
    if tokens < TOKENS_MAX:
        rest, at = text[at:].strip(), len(text)  # the end of a text that was cut
        parts.append(str(escape(escaped(rest, None))))
    return Markup("".join(parts)), at  # noqa: S704 - every part is escaped above


def _line(depth: int) -> str:
    return f"\n{'  ' * min(depth, INDENTED)}"
