"""The pages of the HTTP API: its operations by what they are about, its scopes, and the codes of problems."""

from __future__ import annotations

from holdfast.http.operation import BODY_BYTES, Operation, all_operations, operations_by_tag, scope_words
from holdfast.http.problems import CAUSES
from holdfast.records import Scope
from tools.docs import text

INTRODUCTION = (
    "Every operation of the HTTP API. [The guide](../guide/http.md) shows how to use them, and "
    "[keys](../guide/keys.md) what a key may do. A running server has the same list with all fields at "
    "`/docs`, and OpenAPI 3.1 documents at `/openapi.json` and, for [workers](../worker-protocol.md), at "
    "`/worker-openapi.json`. A body has at most "
    f"{BODY_BYTES // 1024} KiB unless its row says more."
)


def _named(one: Operation) -> str:
    return f"`{one.method} {one.path}`"


def _row(one: Operation) -> list[str]:
    largest = "" if one.body_bytes == BODY_BYTES else f" Body: at most {one.body_bytes // 1024:,} KiB."
    return [_named(one), text.one_line(f"{one.summary}{largest}"), scope_words(one, "`{}`")]


def may(scope: Scope) -> list[Operation]:
    """Return the operations that need this scope, or take it as one of several, but not all."""
    found = [one for group in operations_by_tag().values() for one in group]
    return [one for one in found if scope in one.scopes and set(one.scopes) != set(Scope)]


def operations() -> str:
    """Return the page of operations."""
    parts = [INTRODUCTION, "A refusal has a code: [problems](problems.md)."]
    for tag, group in operations_by_tag().items():
        parts += [f"## {tag}", text.table(["operation", "what it does", "scope"], map(_row, group))]
    hidden = [one for one in all_operations().values() if one.hidden]
    pages = ", ".join(f"`{one.path}`" for one in hidden)
    parts.append(f"These pages need no key either: {pages}.")
    rows = [[f"`{scope}`", ", ".join(map(_named, may(scope))) or "nothing yet"] for scope in Scope]
    parts += ["## By scope", text.table(["scope", "operations"], rows)]
    return text.page("HTTP operations", "`holdfast.http.operation`", *parts)


def problems() -> str:
    """Return the page of the codes of problems."""
    rows = [
        [
            f"`{code}`",
            str(cause.status),
            f"{cause.title}. {cause.meaning}",
            "yes" if cause.retryable else "no",
        ]
        for code, cause in CAUSES.items()
    ]
    return text.page(
        "HTTP problems",
        "`holdfast.http.problems`",
        "The body of every refusal is `application/problem+json` (RFC 9457) with one of these codes. A code "
        "never changes its meaning. `title` and `detail` are sentences for people and may change. "
        "[The guide](../guide/http.md#errors) explains the other fields.",
        text.table(["code", "status", "meaning", "may succeed later"], rows),
    )
