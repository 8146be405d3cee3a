"""The OpenAPI 3.1 documents, of the API and of the worker protocol, made from the table of operations and the
records that parse the requests.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from .examples import EXAMPLES
from .operation import API, HEADER_NAMES, TAGS, WORKER, Body, Operation, all_operations
from .problems import CAUSES, Code, Problem

API_VERSION = "1"  # of the API, not of the package: everyone can read this document
REF = "#/components/schemas/{name}"
DESCRIPTION = """\
Start runs, read them, watch them live, decide approvals, send events, and operate a Holdfast store.

Every request needs an API key: `Authorization: Bearer hf_…`. The tenant is that of the key. Times are RFC
3339 with a zone, durations are seconds, and costs are numbers. Lists come in pages: pass `next` of a page as
`cursor` of the next one. Refusals are `application/problem+json` with a stable `code`."""
WORKER_DESCRIPTION = """\
The protocol of workers in any language: register, claim runs with a long poll, keep their leases with
heartbeats, and write what they have done in batches.

Every request needs an API key with the scope `work`: `Authorization: Bearer hf_…`, and the header
`Holdfast-Protocol: 1`. A worker gets the runs of the key's tenant. Durations are milliseconds; times of a
lease are milliseconds since its claim. Unknown fields are ignored. Refusals are `application/problem+json`
with a stable `code`."""
_TITLES = {API: ("Holdfast", DESCRIPTION), WORKER: ("Holdfast worker protocol", WORKER_DESCRIPTION)}
_WHERE = {"path": "path", "query": "query", "headers": "header"}
# Codes that an operation may answer with, besides those that its parts bring.
_ALWAYS = (Code.HEAD_TOO_LARGE, Code.INTERNAL, Code.STORE_UNAVAILABLE)
_WITH_KEY = (
    Code.UNAUTHENTICATED, Code.SCOPE_MISSING, Code.HOST_REFUSED, Code.ORIGIN_REFUSED, Code.RATE_LIMIT,
    Code.BAD_VALUE,
)  # fmt: skip
_STARTING = frozenset({"start", "start_many", "rerun", "bulk", "fire_schedule", "schedule"})
_WITH_BODY = (
    Code.BAD_JSON, Code.BODY_TOO_SLOW, Code.TOO_LARGE, Code.NOT_JSON, Code.BAD_VALUE, Code.CONFLICT,
)  # fmt: skip


def document(root_path: str = "", part: str = API) -> dict[str, Any]:
    """Return the document of one part for a server that is mounted at this path."""
    operations = [one for one in all_operations().values() if not one.hidden and one.part == part]
    title, description = _TITLES[part]
    types = {one for operation in operations for one in _types(operation)}
    ordered = sorted(types, key=str)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=REF)
    known = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in sorted(operations, key=lambda one: (one.path, one.method)):
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, known)
    found = {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": API_VERSION,
            "description": description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": root_path or "/"}],
        "security": [{"key": []}],
        "tags": [
            {"name": tag, "description": TAGS[tag]} for tag in dict.fromkeys(one.tag for one in operations)
        ],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key: `hf_<id>_<secret>`."}
            },
            "schemas": {name: components[name] for name in sorted(components)},
        },
    }
    return _renamed(_tidy(found))


@lru_cache(maxsize=8)  # the prefix of a mounted API may be part of the request
def document_bytes(root_path: str, part: str = API) -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(document(root_path, part))


def _types(operation: Operation) -> list[Any]:
    kept = [] if "body" not in operation.takes else [_body(operation)]
    return [*kept, *([] if operation.answer is None else [operation.answer]), Problem]


def _body(operation: Operation) -> Any:
    """Return the body of an operation as the document shows it."""
    return getattr(operation.takes["body"], "shape", operation.takes["body"])


def _described(operation: Operation, known: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
    }
    needs = " or ".join(f"`{scope}`" for scope in operation.scopes)
    description = "\n\n".join(filter(None, [operation.description, needs and f"Scope: {needs}."]))
    if description:
        found["description"] = description
    if not operation.scopes:
        found["security"] = []
    if parameters := _parameters(operation):
        found["parameters"] = parameters
    if "body" in operation.takes:
        content: dict[str, Any] = {"schema": known[_body(operation)]}
        if operation.id in EXAMPLES:
            content["example"] = EXAMPLES[operation.id]
        needed = any(one.required for one in msgspec.structs.fields(_body(operation)))
        found["requestBody"] = {"required": needed, "content": {"application/json": content}}
    found["responses"] = _responses(operation, known)
    return found


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found = []
    for name, where in _WHERE.items():
        if (type_ := operation.takes.get(name)) is None:
            continue
        schema = msgspec.json.schema(type_, ref_template="#/$defs/{name}")
        definitions: dict[str, Any] = schema.get("$defs", {})
        described = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        for field, one in described["properties"].items():
            found.append(_parameter(field, where, _inlined(one, definitions), described))
    return found


def _parameter(field: str, where: str, schema: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    options = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(options) == 1:
        schema = options[0]
    schema = {name: value for name, value in schema.items() if name != "default" or value is not None}
    description = schema.pop("description", None)
    found: dict[str, Any] = {
        "name": HEADER_NAMES.get(field, field) if where == "header" else field,
        "in": where,
        "required": where == "path" or field in described.get("required", ()),
        "schema": schema,
    }
    return {**found, "description": description} if description else found


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema without references: parameters have few types, and none that holds itself."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {name: _inlined(value, definitions) for name, value in schema.items()}
    return [_inlined(one, definitions) for one in schema] if isinstance(schema, list) else schema


def _responses(operation: Operation, known: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in operation.statuses:
        one: dict[str, Any] = {"description": _GOOD.get(status, "Done.")}
        if operation.answer is not None:
            one["content"] = {"application/json": {"schema": known[operation.answer]}}
            if operation.streams:
                one["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        if operation.text:
            one["content"] = {operation.text: {"schema": {"type": "string"}}}
        found[str(status)] = one
    if operation.streams and "{run}" in operation.path:
        found["204"] = {"description": "The run has ended, and there is nothing left to stream."}
    by_status: dict[int, list[Code]] = {}
    for code in codes_of(operation):
        by_status.setdefault(CAUSES[code].status, []).append(code)
    for status in sorted(by_status):
        codes = ", ".join(f"`{code}`" for code in by_status[status])
        found[str(status)] = {
            "description": f"Problem: {codes}.",
            "content": {"application/problem+json": {"schema": known[Problem]}},
        }
    return found


_GOOD = {200: "Done.", 201: "Created.", 202: "The run is still open.", 204: "Done."}


def codes_of(operation: Operation) -> list[Code]:
    """Return the codes that an operation may be refused with."""
    query = getattr(operation.takes.get("query"), "__struct_fields__", ())
    writes, path, id_ = operation.method != "GET", operation.path, operation.id
    parts: list[tuple[bool, tuple[Code, ...]]] = [
        (True, _ALWAYS),
        (bool(operation.scopes), _WITH_KEY),
        (writes, (*_WITH_BODY, Code.CONFLICT)),
        ("{run}" in path, (Code.RUN_NOT_FOUND, Code.UNREADABLE)),
        ("{run}" in path and writes, (Code.ILLEGAL_MOVE, Code.STEP_NOT_FOUND)),
        ("/schedules/{name}" in path, (Code.SCHEDULE_NOT_FOUND,)),
        ("{message}" in path, (Code.MESSAGE_NOT_FOUND,)),
        ("/keys/{key}" in path, (Code.KEY_NOT_FOUND,)),
        (id_ in _STARTING, (Code.KEY_REUSED, Code.WORKFLOW_NOT_FOUND)),
        (id_ in {"start", "start_many", "rerun"}, (Code.OPEN_RUNS_LIMIT,)),
        (id_ == "emit", (Code.RUN_NOT_FOUND, Code.ILLEGAL_MOVE)),
        (operation.streams, (Code.STREAMS_LIMIT, Code.SHUTTING_DOWN)),
        (id_ in {"result", "claim", "states", "register_worker"}, (Code.STREAMS_LIMIT,)),
        (operation.part == WORKER, (Code.PROTOCOL_VERSION,)),
        (id_ == "load", (Code.LEASE_LOST, Code.UNREADABLE)),
        ("cursor" in query, (Code.BAD_CURSOR,)),
        (id_ == "readyz", (Code.SHUTTING_DOWN,)),
    ]
    return list(dict.fromkeys(code for holds, codes in parts if holds for code in codes))


def _tidy(value: Any) -> Any:
    """Return the document without titles, which only repeat names, and without "anything, or null"."""
    if isinstance(value, dict):
        # A record may have a field `title`: its schema is no text.
        skipped = {"title"} if isinstance(value.get("title"), str) and "version" not in value else set()
        if {} in value.get("anyOf", ()):
            skipped.add("anyOf")
        return {name: _tidy(one) for name, one in value.items() if name not in skipped}
    return [_tidy(one) for one in value] if isinstance(value, list | tuple) else value


def _renamed(found: dict[str, Any]) -> dict[str, Any]:
    """Return the document with schema names as people say them: Run, not RunData; RunPage for a page."""
    bodies = {one.__name__ for one in Body.__subclasses__()}
    names = {name: _plain(name, bodies) for name in found["components"]["schemas"]}
    assert len({*names.values()}) == len(names), "two schemas have one name"
    renamed: dict[str, Any] = _references(
        found, {REF.format(name=old): REF.format(name=new) for old, new in names.items()}
    )
    schemas = renamed["components"]["schemas"]
    renamed["components"]["schemas"] = {names[name]: schemas[name] for name in schemas}
    return renamed


def _plain(name: str, bodies: set[str]) -> str:
    if name.startswith("Page_"):
        return f"{_plain(name.removeprefix('Page_').rstrip('_'), bodies)}Page"
    return f"{name}Request" if name in bodies else name.removesuffix("Data")


def _references(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            name: names.get(one, one) if name == "$ref" else _references(one, names)
            for name, one in value.items()
        }
    return [_references(one, names) for one in value] if isinstance(value, list) else value
