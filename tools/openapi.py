"""The check `openapi`: no change of the OpenAPI documents since the last release breaks clients.

`docs/reference/openapi.json` and `worker-openapi.json`, of the worker protocol, are the present documents,
written by `./hf docs`. Each is compared with that of the newest release tag `v…`. While nothing is released,
it is compared with a file here, as `tools/openapi_baseline.json`: a copy that is replaced by hand (`python -m
tools.openapi --accept`) when a break is meant.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
BASELINES = {
    "openapi.json": ROOT / "tools" / "openapi_baseline.json",
    "worker-openapi.json": ROOT / "tools" / "worker_openapi_baseline.json",
}
METHODS = ("get", "put", "post", "delete", "patch")
LEVELS_MAX = 12  # of schemas inside schemas
Schema = dict[str, Any]


def breaks(old: Schema, new: Schema) -> list[str]:
    """Return the changes from one document to another that can break a client, one sentence each."""
    found = []
    for path, methods in old["paths"].items():
        for method in [one for one in METHODS if one in methods]:
            name = f"{method.upper()} {path}"
            before, after = methods[method], new["paths"].get(path, {}).get(method)
            if after is None:
                found.append(f"{name}: the operation was removed")
                continue
            found += [f"{name}: {one}" for one in _operation(Pair(old, new), before, after)]
    return list(dict.fromkeys(found))


class Pair:
    """The two documents: schemas of either are resolved in it."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new

    def old(self, schema: Schema) -> Schema:
        return _resolved(self._old, schema)

    def new(self, schema: Schema) -> Schema:
        return _resolved(self._new, schema)


def _resolved(document: Schema, schema: Schema) -> Schema:
    while "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schema = document["components"]["schemas"][name]
    return schema


def _operation(pair: Pair, old: Schema, new: Schema) -> Iterator[str]:
    if old["operationId"] != new["operationId"]:
        yield f"operationId {old['operationId']} became {new['operationId']}"
    if old.get("security") == [] and new.get("security") != []:
        yield "it needs a key now"
    yield from _parameters(pair, old.get("parameters", []), new.get("parameters", []))
    yield from _bodies(pair, old.get("requestBody"), new.get("requestBody"))
    for status, answer in old["responses"].items():
        if status not in new["responses"]:
            if int(status) < 400:
                yield f"the answer {status} was removed"
            continue
        kinds = new["responses"][status].get("content", {})
        for kind, one in answer.get("content", {}).items():
            if kind not in kinds:
                yield f"the answer {status} is not {kind} any more"
            else:
                yield from _answers(pair, one["schema"], kinds[kind]["schema"], f"answer {status}", 0)


def _parameters(pair: Pair, old: Sequence[Schema], new: Sequence[Schema]) -> Iterator[str]:
    before, after = ({(one["in"], one["name"]): one for one in many} for many in (old, new))
    for key, one in before.items():
        where = f"{key[0]} {key[1]}"
        if key not in after:
            yield f"{where} was removed"
            continue
        if after[key].get("required") and not one.get("required"):
            yield f"{where} is required now"
        schema = pair.new(after[key]["schema"])
        if "array" not in _kinds(pair.old, pair.old(one["schema"])):
            schema = _items(pair.new, schema) or schema  # a parameter that may be repeated may be given once
        yield from _requests(pair, one["schema"], schema, where, 0)
    for key in after.keys() - before.keys():
        if after[key].get("required"):
            yield f"{key[0]} {key[1]} is new and required"


def _bodies(pair: Pair, old: Schema | None, new: Schema | None) -> Iterator[str]:
    if old is None:
        if new is not None and new.get("required") and _needs_fields(pair, new):
            yield "a body is required now"
        return
    if new is None:
        yield "it takes no body any more"
        return
    for kind, one in old["content"].items():
        if kind not in new["content"]:
            yield f"the body may not be {kind} any more"
        else:
            yield from _requests(pair, one["schema"], new["content"][kind]["schema"], "body", 0)


def _needs_fields(pair: Pair, body: Schema) -> bool:
    return any(pair.new(one["schema"]).get("required") for one in body["content"].values())


def _requests(pair: Pair, old: Schema, new: Schema, where: str, level: int) -> Iterator[str]:
    """Yield why a value that was taken may be refused now."""
    old, new = pair.old(old), pair.new(new)
    if level > LEVELS_MAX:
        return
    kinds = _kinds(pair.old, old) - _kinds(pair.new, new)
    if kinds and "any" not in _kinds(pair.new, new):
        yield f"{where} takes no {' or '.join(sorted(kinds))} any more"
        return
    for word in sorted(_words(pair.old, old) - _words(pair.new, new)) if _words(pair.new, new) else ():
        yield f"{where} does not take {word!r} any more"
    yield from _narrower(_options(pair.old, old), _options(pair.new, new), where)
    before, after = _fields(pair.old, old), _fields(pair.new, new)
    needed, needed_before = _required(pair.new, new), _required(pair.old, old)
    for name, field in before.items():
        if name not in after:
            yield f"{where}.{name} was removed"
        else:
            yield from _requests(pair, field, after[name], f"{where}.{name}", level + 1)
    yield from (f"{where}.{name} is required now" for name in sorted(needed - needed_before))
    if (items := _items(pair.old, old)) and (others := _items(pair.new, new)):
        yield from _requests(pair, items, others, f"{where}[]", level + 1)


def _narrower(old: Sequence[Schema], new: Sequence[Schema], where: str) -> Iterator[str]:
    """Yield bounds that became narrower, where a value has one kind besides null."""
    if len(old) != 1 or len(new) != 1:
        return
    for bound, is_upper in (("maxLength", True), ("maximum", True), ("maxItems", True),
                            ("minLength", False), ("minimum", False), ("minItems", False)):  # fmt: skip
        before, after = old[0].get(bound), new[0].get(bound)
        if after is not None and (before is None or (after < before if is_upper else after > before)):
            yield f"{where}: {bound} is {after} now, and was {before}"
    if new[0].get("pattern") not in {None, old[0].get("pattern")}:
        yield f"{where} has another pattern"


def _answers(pair: Pair, old: Schema, new: Schema, where: str, level: int) -> Iterator[str]:
    """Yield why a client that reads the answer may not understand it now."""
    old, new = pair.old(old), pair.new(new)
    if level > LEVELS_MAX:
        return
    kinds, others = _kinds(pair.old, old), _kinds(pair.new, new)
    if kinds != others and "any" not in kinds and (others - kinds or level == 0):
        yield f"{where} may be {' or '.join(sorted(others - kinds) or sorted(others))} now"
        return
    for word in sorted(_words(pair.old, old) - _words(pair.new, new)):
        yield f"{where} is never {word!r} any more"
    before, after = _fields(pair.old, old), _fields(pair.new, new)
    always = _required(pair.new, new)
    for name, field in before.items():
        if name not in after:
            yield f"{where}.{name} was removed"
            continue
        if name in _required(pair.old, old) and name not in always:
            yield f"{where}.{name} may be missing now"
        yield from _answers(pair, field, after[name], f"{where}.{name}", level + 1)
    if (items := _items(pair.old, old)) and (others_ := _items(pair.new, new)):
        yield from _answers(pair, items, others_, f"{where}[]", level + 1)


def _options(of: Any, schema: Schema) -> list[Schema]:
    """Return the kinds of values that a schema allows, each as a schema, without null."""
    options = [of(one) for one in schema.get("anyOf", [])] or [schema]
    return [one for one in options if one.get("type") != "null"]


def _kinds(of: Any, schema: Schema) -> set[str]:
    found: set[str] = set()
    for one in [of(part) for part in schema.get("anyOf", [])] or [schema]:
        kind = one.get("type")
        said = kind if isinstance(kind, list) else [kind or ("string" if "enum" in one else "any")]
        found |= {
            f"{name} ({one['format']})" if "format" in one and name == "string" else name for name in said
        }
    return found


def _words(of: Any, schema: Schema) -> set[str]:
    return {str(word) for one in _options(of, schema) for word in one.get("enum", ())}


def _fields(of: Any, schema: Schema) -> dict[str, Schema]:
    return {name: field for one in _options(of, schema) for name, field in one.get("properties", {}).items()}


def _required(of: Any, schema: Schema) -> set[str]:
    return {name for one in _options(of, schema) for name in one.get("required", ())}


def _items(of: Any, schema: Schema) -> Schema | None:
    found = [one["items"] for one in _options(of, schema) if isinstance(one.get("items"), dict)]
    return found[0] if found else None


def released(root: Path = ROOT, name: str = "openapi.json") -> tuple[str, str] | None:
    """Return the newest release tag that has a document, and the document; None before the first one."""
    tags = _git(root, "tag", "--list", "v*", "--sort=-version:refname").split()
    for tag in tags:
        text = _git(root, "show", f"{tag}:docs/reference/{name}")
        if text:
            return tag, text
    return None


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def main(arguments: Sequence[str]) -> int:
    found = 0
    for name, baseline in BASELINES.items():
        present = json.loads((FOLDER / name).read_text("utf-8"))
        if "--accept" in arguments:
            baseline.write_text(json.dumps(present, separators=(",", ":")) + "\n", "utf-8")
            print(f"wrote {baseline.relative_to(ROOT)}")
        else:
            found += _compared(name, present, baseline)
    return 1 if found else 0


def _compared(name: str, present: Schema, baseline: Path) -> int:
    """Print the changes of one document that break clients; return their number."""
    before, text = released(name=name) or (str(baseline.relative_to(ROOT)), baseline.read_text("utf-8"))
    found = breaks(json.loads(text), present)
    for one in found:
        print(one)
    if found:
        print(f"{len(found)} changes of {name} break clients of {before}; if that is meant: "
              "`python -m tools.openapi --accept`, and a line in the CHANGELOG")  # fmt: skip
    return len(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
