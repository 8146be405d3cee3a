"""The docs pages of the server: operations and problems as plain HTML, without scripts."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from functools import lru_cache
from html import escape

import msgspec
from starlette.responses import Response

from .operation import HEADER_NAMES, Operation, operations_by_tag, scope_words
from .problems import CAUSES

CURL = """\
curl -H "Authorization: Bearer $KEY" --json '{"type": "shop.order", "params": {"id": 42}}' "$API/runs"
curl -H "Authorization: Bearer $KEY" "$API/runs?status=failed&limit=10"\
"""

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark; }
code { font-family: ui-monospace, monospace; font-size: .95em; }
pre { font: .95em/1.5 ui-monospace, monospace; background: #8882; padding: .6rem .8rem; overflow-x: auto; }
nav { margin: 1rem 0; }
:target { background: #fc05; }
h2 { border-bottom: 1px solid #8886; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin-bottom: .2rem; }
p { margin: .2rem 0; }
table { border-collapse: collapse; }
td, th { text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top; }
td:first-child, th { white-space: nowrap; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
.small { opacity: .7; font-size: .9rem; }
"""
_HASH = b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@lru_cache(maxsize=8)  # the prefix of a mounted API may be part of the request
def operations_page(root_path: str) -> bytes:
    """Return the page of operations. It needs no key, so it must cost nothing."""
    return _page(operations_html(root_path))


@lru_cache(maxsize=8)
def problems_page(root_path: str) -> bytes:
    """Return the page of problems."""
    return _page(problems_html(root_path))


def answer(html: bytes) -> Response:
    """Return a page as an answer."""
    return Response(html, media_type="text/html; charset=utf-8", headers=HEADERS)


def _page(body: str) -> bytes:
    html = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Holdfast API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><body>{body}</body></html>"
    )
    return html.encode()


def operations_html(root_path: str) -> str:
    """Return the operations, by what they are about."""
    root, groups = escape(root_path, quote=True), operations_by_tag()
    contents = " · ".join(f'<a href="#{tag.lower()}">{tag}</a>' for tag in groups)
    parts = [
        "<h1>Holdfast API</h1>",
        "<p>Send your API key with each request: <code>Authorization: Bearer hf_…</code></p>",
        "<p>Bodies are JSON: <code>Content-Type: application/json</code></p>",
        f'<p>Each refusal has a code: see <a href="{root}/docs/problems">all codes</a>.</p>',
        f'<p>For programs: <a href="{root}/openapi.json">openapi.json</a> (OpenAPI 3.1).</p>',
        f"<pre>{escape(CURL)}</pre>",
        f"<nav>{contents}</nav>",
    ]
    for tag, operations in groups.items():
        parts.append(f'<h2 id="{tag.lower()}">{tag}</h2>')
        parts += [_operation_html(one) for one in operations]
    return "".join(parts)


def _operation_html(one: Operation) -> str:
    fields = "".join(
        f"<p class=small>{name}: {_fields(type_)}</p>"
        for name, type_ in one.takes.items()
        if name != "path" and type_.__struct_fields__
    )
    return (
        f'<h3 id="{escape(one.id)}"><span class=method>{one.method}</span> '
        f"<code>{escape(one.path)}</code></h3>"
        f"<p>{_text(one.summary)}</p>"
        + (f"<p class=small>{_text(one.description)}</p>" if one.description else "")
        + fields
        + f"<p class=small>scope: {scope_words(one, '<code>{}</code>')}</p>"
    )


def _fields(type_: type[msgspec.Struct]) -> str:
    """Return the names of the fields of a request; those that must be given are marked."""
    return ", ".join(
        f"<code>{escape(_name(one))}</code>{' (required)' if one.required else ''}"
        for one in msgspec.structs.fields(type_)
    )


def _name(field: msgspec.structs.FieldInfo) -> str:
    return HEADER_NAMES.get(field.name, field.name)


def _text(text: str) -> str:
    """Return a text with `code` as HTML."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def problems_html(root_path: str) -> str:
    """Return the codes of problems."""
    rows = "".join(
        f'<tr id="{code}"><td><code>{code}</code></td><td>{cause.status}</td>'
        f"<td>{_text(cause.title)}. {_text(cause.meaning)}</td>"
        f"<td>{'yes' if cause.retryable else 'no'}</td></tr>"
        for code, cause in CAUSES.items()
    )
    root = escape(root_path, quote=True)
    return (
        "<h1>Problems</h1>"
        "<p>The body of every refusal is <code>application/problem+json</code> (RFC 9457). Its "
        "<code>code</code> never changes its meaning; <code>detail</code> is a sentence for people. "
        f'<a href="{root}/docs">All operations</a></p>'
        "<table><tr><th>code</th><th>status</th><th>meaning</th><th>may succeed later</th></tr>"
        f"{rows}</table>"
    )
