"""Routing: the operations of a path are found in a tree of its segments.

A path is split before it is decoded, so that `%2F` is a part of a name. A literal segment goes before a
parameter: `/runs/batch` is not taken for a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote

from starlette.types import Scope

T = TypeVar("T")
SEGMENTS_MAX = 8


class _Node(Generic[T]):
    def __init__(self) -> None:
        self.literal: dict[str, _Node[T]] = {}
        self.parameter: _Node[T] | None = None
        self.found: tuple[tuple[str, ...], T] | None = None  # the names of the parameters, and the value


class PathTable(Generic[T]):
    """Values by path template, such as `/runs/{run}/steps`."""

    def __init__(self, values: Mapping[str, T]) -> None:
        self._root: _Node[T] = _Node()
        self._fixed = {template: value for template, value in values.items() if "{" not in template}
        for template, value in values.items():
            node, names = self._root, []
            for segment in template.split("/")[1:]:
                if segment.startswith("{"):
                    names.append(segment[1:-1])
                    node.parameter = node.parameter or _Node()
                    node = node.parameter
                else:
                    node = node.literal.setdefault(segment, _Node())
            node.found = tuple(names), value

    def find(self, path: str) -> tuple[T, dict[str, str]] | None:
        """Return the value of an encoded path, and its decoded parameters; None when there is none."""
        if (fixed := self._fixed.get(path)) is not None:
            return fixed, {}
        segments = path.split("/")[1:]
        if len(segments) > SEGMENTS_MAX:
            return None
        try:
            given: list[str] = []
            found = _walk(self._root, segments, given)
            return None if found is None else (found[1], dict(zip(found[0], given, strict=True)))
        except UnicodeError:
            return None


def _walk(node: _Node[T], segments: list[str], given: list[str]) -> tuple[tuple[str, ...], T] | None:
    if not segments:
        return node.found
    first, rest = segments[0], segments[1:]
    if (literal := node.literal.get(first)) is not None and (
        found := _walk(literal, rest, given)
    ) is not None:
        return found
    if node.parameter is None or not first:
        return None
    given.append(unquote(first, errors="strict"))
    if (found := _walk(node.parameter, rest, given)) is None:
        given.pop()
    return found


def encoded_path(scope: Scope) -> str:
    """Return the path as it was sent, without the prefix that the API is mounted at."""
    raw: Any = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")
    root = scope.get("root_path", "")
    if not root:
        return path
    root = quote(root)
    return path[len(root) :] if path.startswith(f"{root}/") else path
