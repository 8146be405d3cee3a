"""JSON Schemas of params and results, which workers publish with their workflows."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.bounds import SCHEMA_BYTES

NOTHING = '{"type":"null"}'  # of a workflow that takes no value


def schema_of(wanted: Any) -> str | None:
    """Return the JSON Schema of an annotation; None if it says nothing, cannot be described, or is too large.

    A schema is a help for those who start runs, so no fault of it keeps a workflow from being published.
    """
    if wanted is Any or wanted is object:
        return None
    try:
        found = _pydantic(wanted) or msgspec.json.schema(wanted, schema_hook=_inner)
        text = msgspec.json.encode(found, order="deterministic").decode()
    except Exception:  # noqa: BLE001 - it runs hooks of users' classes
        return None
    return text if len(text.encode()) <= SCHEMA_BYTES and "\0" not in text else None


def _pydantic(wanted: Any) -> dict[str, Any] | None:
    """Return the schema of a pydantic model, without a dependency on pydantic."""
    describe = getattr(wanted, "model_json_schema", None)
    return describe() if isinstance(wanted, type) and callable(describe) else None


def _inner(wanted: type) -> dict[str, Any]:
    """Return the schema of a pydantic model inside another type. References of its own would not be found
    from there: then nothing is said about the value.
    """
    found = _pydantic(wanted)
    return {} if found is None or "$defs" in found else found
