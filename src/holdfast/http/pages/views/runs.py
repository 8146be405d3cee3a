"""The list of runs, with all filters, and bulk operations on what a filter matches."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.engine.bulk.asked import BULK_LABEL, BULK_TYPE, RATE, RATE_MAX, BulkReport, BulkVerb
from holdfast.engine.bulk.workflow import COUNT_MAX
from holdfast.http.pages.page import Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.http.pages.run_query import (
    FLAGS,
    LISTS,
    NAMES,
    Fields,
    asked,
    bulk_where,
    read_line,
    written_line,
)
from holdfast.http.problems import Code, Refusal
from holdfast.lifecycle import Status, StepKind, spoken_status
from holdfast.records import Scope
from holdfast.records.unreadable import read_object
from holdfast.shell import quoted

from .reading import LIST_SECONDS, listed

LIMIT = 50
COUNTED = 1_000  # runs that a preview counts at first
COUNT_SECONDS = 20.0  # for a count that was asked for
VERB_WORDS: dict[str, str] = {
    BulkVerb.CANCEL: "cancel",
    BulkVerb.PAUSE: "pause",
    BulkVerb.RESUME: "resume",
    BulkVerb.RETRY: "retry",
    BulkVerb.REWIND: "rewind to the beginning",
    BulkVerb.DELETE: "delete",
}


def filter_of(call: PageCall) -> Fields:
    """Return the filter of the address: the typed line `q`, or the fields."""
    if (line := call.one("q")) is not None:
        return read_line(line)
    fields: Fields = {}
    for name in NAMES:
        given = call.all(name)
        if given:
            fields[name] = given if name in LISTS else True if name in FLAGS else given[-1]
    return fields


def _is_quick(call: PageCall) -> bool:
    """Return True for a list that may be read each second: a search for a text in values is slow."""
    return call.one("contains") is None and "contains" not in (call.one("q") or "")


@page("/runs", title="Runs", menu="Runs", live=_is_quick)
async def runs(call: PageCall) -> Shown:
    """Show a page of runs, newest first. A wrong filter is one line above an empty list."""
    data: dict[str, Any] = {
        "line": call.one("q") or "",
        "fields": {},
        "problem": "",
        "runs": (),
        "next": None,
        "seconds": LIST_SECONDS,
    }
    try:
        data["fields"] = fields = filter_of(call)
        data["line"] = written_line(fields)
        query = {**asked(fields, call.now), "limit": LIMIT, "after": call.one("after"), "children": True}
        found = await listed(call, query)
        if found is None:
            call.is_slow, data["narrower"] = True, _narrower(call, fields)
        else:
            data |= {"runs": found.items, "next": found.next and str(found.after)}
    except Refusal as refusal:
        data["problem"] = refusal.problem("", "").detail
    data |= {
        "statuses": [(one, spoken_status(one)) for one in Status],
        "kinds": list(StepKind),
        "verbs": VERB_WORDS,
        "limit": LIMIT,
        "command": _command(data["fields"], call.own_tenant),
    }
    return Shown("runs.html", data)


def _narrower(call: PageCall, fields: Fields) -> list[tuple[str, str]]:
    """Return words and addresses of lists with the same filter and a shorter time."""
    spans = {"1h": "the last hour", "1d": "the last day", "7d": "the last 7 days"}
    lines = {words: written_line({**fields, "created_since": ago}) for ago, words in spans.items()}
    return [(words, call.link("/runs", q=line)) for words, line in lines.items()]


def _command(fields: Fields, tenant: str) -> str:
    """Return the command that lists the same runs; empty: `holdfast ls` has no such filter. tenant: the
    option for it.
    """
    since = {name.partition("_")[0] for name in fields if name.endswith(("_since", "_until"))}
    if len(since) > 1 or "waiting_on" in fields:
        return ""
    words = [tenant] if tenant else []
    for name, value in fields.items():
        end = name.partition("_")[2]
        option = end if end in {"since", "until"} else name
        if value is True:
            words.append(f"--{option}")
        else:
            listed = value if isinstance(value, list) else [value]
            listed = [spoken_status(one) for one in listed] if name == "status" else listed
            words += [f"--{option} {quoted(one)}" for one in listed]
    by = {"finished": "--by finished", "updated": "--by changed"}
    words += [by[one] for one in since if one in by]
    return " ".join(["holdfast ls", *words])


@page("/runs/bulk", title="Bulk operation", scope=Scope.RUNS_WRITE)
async def preview(call: PageCall) -> Shown:
    """Show what a bulk operation would take: how many runs, and a few of them."""
    fields = filter_of(call)
    verb = next((one for one in BulkVerb if one == call.one("verb")), BulkVerb.CANCEL)
    where, found, is_late = bulk_where(fields, call.now), None, False
    counts_all = call.one("count") == "all"
    seconds = COUNT_SECONDS if counts_all else LIST_SECONDS
    if call.can("preview"):
        body = {"verb": verb, "where": where, "most": COUNT_MAX if counts_all else COUNTED}
        try:
            async with asyncio.timeout(seconds):
                found = await call.ask("preview", body=body)
        except TimeoutError:
            is_late = True
    data = {
        "verb": verb,
        "words": VERB_WORDS[verb],
        "verbs": VERB_WORDS,
        "where": msgspec.json.encode(where).decode(),
        "fields": fields,
        "line": written_line(fields),
        "found": found,
        "is_late": is_late,
        "seconds": seconds,
        "longer": COUNT_SECONDS,
        "can_count": not counts_all,
        "rate": RATE,
        "rate_max": RATE_MAX,
    }
    return Shown("bulk_preview.html", data, title=f"Bulk: {VERB_WORDS[verb]}")


@page("/bulk", title="Bulk operations", live=True)
async def operations(call: PageCall) -> Shown:
    """Show the bulk operations of the tenant, newest first."""
    found = await call.ask("list_bulk", query={"limit": LIMIT, "cursor": call.one("cursor")})
    rows = [(one, _verb(one.labels), _progress(one.progress)) for one in found.items]
    return Shown("bulk_list.html", {"rows": rows, "next": found.next, "limit": LIMIT})


@page("/bulk/{run}", title="Bulk operation", live=True)
async def operation(call: PageCall) -> Shown:
    """Show how far a bulk operation is, and its report."""
    run = await call.ask("get", path=call.path)
    if run.type != BULK_TYPE:
        raise Refusal(Code.NOT_FOUND, "this run is no bulk operation")
    if run.present != run.id:  # a long one goes on in further runs
        run = await call.ask("get", path={"run": run.present})
    given = read_object(bytes(run.params))
    data = {
        "run": run,
        "progress": _progress(run.progress),
        "report": _report(run.result) if run.status is Status.SUCCEEDED else None,
        "verb": VERB_WORDS.get(str(given.get("verb"))),
        "where": _spoken(given.get("where")),
    }
    return Shown("bulk.html", data)


def _verb(labels: msgspec.Raw) -> str:
    return VERB_WORDS.get(str(read_object(bytes(labels)).get(BULK_LABEL)), "")


def _report(raw: msgspec.Raw) -> BulkReport | None:
    try:
        return msgspec.json.decode(raw, type=BulkReport)
    except msgspec.DecodeError:
        return None


def _spoken(where: Any) -> Any:
    """Return a filter with the statuses as people say them."""
    if isinstance(where, dict) and isinstance(statuses := where.get("statuses"), list):
        return {**where, "statuses": [spoken_status(str(one)) for one in statuses]}
    return where


def _progress(raw: msgspec.Raw) -> dict[str, Any]:
    """Return done, total and note of a progress, as far as they are there and as they should be."""
    found = read_object(bytes(raw)) if bytes(raw) != b"null" else {}
    kept = {"done": int, "total": int, "note": str}
    return {name: found[name] for name, type_ in kept.items() if isinstance(found.get(name), type_)}
