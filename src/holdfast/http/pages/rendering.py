"""Rendering of templates, with the filters that they use."""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from holdfast.escaping import escaped, escaped_lines
from holdfast.lifecycle import spoken_status
from holdfast.shell import command_of, line_of, quoted
from holdfast.shown.text import counted
from holdfast.shown.times import ago, span, stamp

from .drawing import bars, sparkline
from .json_text import json_html
from .page import Shown
from .pagecall import PageCall
from .run.errors import caused

FOLDER = Path(__file__).parent / "templates"
SHORT, LONG = 200, 20_000  # characters that are shown at once, and with "show all"
SENTENCE = 2_000  # characters of a sentence of ours, with names of users in it


def status(word: str) -> Markup:
    """Return the word of a status with its colour."""
    spoken = spoken_status(word)
    return Markup('<span class="status s-{}">{}</span>').format(spoken, spoken)


def time(at: datetime | None, now: datetime | None = None) -> Markup:
    """Return an instant: relative to now if that is given, with date, time and zone in the title."""
    if at is None:
        return Markup('<span class="none">-</span>')
    iso, whole = at.isoformat().replace("+00:00", "Z"), stamp(at)
    shown = whole if now is None else ago(at, now)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, whole, shown)


def capped(text: Any, limit: int = SHORT, longest: int = LONG) -> Markup:
    """Return a user's text on one line; the rest of a long one is behind "show all", up to `longest`."""
    whole = "" if text is None else str(text)
    if len(whole) <= limit and whole.isprintable():
        return escape(whole)
    if len(whole) <= limit and "\n" not in whole.strip():
        return escape(escaped(whole, None))
    head = escaped(whole[:limit], None)
    return Markup(
        '<details class="more"><summary><span>{}…</span> <b>show all</b> <i>{:,} characters</i></summary>'
        "<pre>{}</pre></details>"
    ).format(head, len(whole), escaped_lines(whole, longest))


def marked(text: str) -> Markup:
    """Return a sentence of ours; what stands between two backticks is code, and a command can be copied."""
    parts = escaped(text, SENTENCE).split("`")
    if len(parts) % 2 == 0:  # a backtick of a user: leave all as they are
        return escape("`".join(parts))
    return Markup("").join(_code(part) if n % 2 else escape(part) for n, part in enumerate(parts))


def _code(text: str) -> Markup:
    code = Markup("<code>{}</code>").format(text)
    if not text.startswith("holdfast ") or not _is_whole(text):
        return code
    return Markup(
        '{} <button type="button" class="script copy" data-copy="{}" aria-label="copy: {}">copy</button>'
    ).format(code, text, text)


def _is_whole(command: str) -> bool:
    """Return False for a command whose quotes are not closed: a backtick in a name has cut it."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return True


def stored(value: Any) -> str:
    """Return a stored value as its JSON text, such as a button copies it."""
    return bytes(value).decode(errors="replace")


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        extensions=["jinja2.ext.do"],
    )
    made.filters.update(
        status=status,
        time=time,
        capped=capped,
        caused=caused,
        json=json_html,
        span=span,
        counted=counted,
        ago=ago,
        stamp=stamp,
        escaped=escaped,
        lines=escaped_lines,
        marked=marked,
        spoken=spoken_status,
        shell=quoted,
        stored=stored,
    )
    made.globals.update(sparkline=sparkline, bars=bars, command_of=command_of, line_of=line_of)
    return made


ENVIRONMENT = _environment()


def render(call: PageCall, shown: Shown, **frame: Any) -> str:
    """Return a page as HTML. The parts of the page are in `call.parts` then."""
    template = ENVIRONMENT.get_template(shown.template)
    return template.render(
        {**frame, **shown.data, "page": call, "title": shown.title or call.page.title, "now": call.now}
    )
