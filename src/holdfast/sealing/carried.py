"""Whole runs with a codec: their values are opened with the keys of one store, and sealed with those of
another, in the same places; or they stay open."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from holdfast.codec import RESERVED, digest
from holdfast.decoding import decode_untyped
from holdfast.errors import CannotOpen
from holdfast.lifecycle import StepKind
from holdfast.records import Json
from holdfast.records.fingerprints import SEALED, fingerprint
from holdfast.records.transfer import CarriedEvent, CarriedMessage, CarriedNote, CarriedRun, CarriedStep

from . import outbox, places, schedules
from .chain import Chain
from .hooks import Where


class Reseal:
    """Opens the values of runs with one chain of hooks and seals them with another. to=None: they stay
    open. A value that is not sealed stays as it is. CannotOpen for one that does not open."""

    def __init__(self, chain: Chain, to: Chain | None) -> None:
        self._from, self._to = chain, to

    def part(self, part: CarriedRun) -> CarriedRun:
        """Return a run, or a part of one."""
        of = (part.tenant, part.id)
        row = part.row
        if row is not None:
            params = Where(tenant=part.tenant, run=part.id, field="params")
            result = Where(tenant=part.tenant, run=part.id, field="result")
            error, line = self._failure(row.error, row.last_error, places.run_error(*of))
            row = replace(
                row,
                digest=self._start_digest(part, params),
                params=self._whole(row.params, params),
                result=row.result and self._whole(row.result, result),
                error=error,
                last_error=line,
                progress=row.progress and self._veil(row.progress, places.progressed(*of)),
            )
        return replace(
            part,
            row=row,
            steps=tuple([self._step(one, of) for one in part.steps]),
            notes=tuple([self._note(one, of) for one in part.notes]),
            messages=tuple([self._message(one, of) for one in part.messages]),
        )

    def event(self, event: CarriedEvent) -> CarriedEvent:
        where = places.payload(event.tenant, event.id, event.topic)
        return replace(event, payload=self._whole(event.payload, where))

    def schedule_params(self, params: Json, tenant: str, name: str) -> Json:
        return self._whole(params, schedules.params_place(tenant, name))

    def _whole(self, text: Json, where: Where) -> Json:
        """Return a value that is sealed as a whole."""
        if RESERVED not in text:
            return text
        opened = self._from.open(text, where)
        return opened if self._to is None else self._to.seal(opened, where)

    def _veil(self, text: Json, where: Where) -> Json:
        """Return an object that is sealed beside its readable entries."""
        opened = self._from.unveil(text, where)
        if opened is None:
            return text
        return opened if self._to is None else self._covered(text, opened, where)

    def _covered(self, text: Json, opened: Json, where: Where, **more: Any) -> Json:
        assert self._to is not None
        shown = {name: value for name, value in msgspec.json.decode(text).items() if name != RESERVED}
        return self._to.veil({**shown, **more}, opened, where) or opened

    def _failure(self, error: Json | None, line: str | None, where: Where) -> tuple[Json | None, str | None]:
        """Return the error of a run, which is sealed together with its one-line form."""
        opened = None if error is None else self._from.unveil(error, where)
        if error is None or opened is None:
            return error, line
        found, plain_line = msgspec.json.decode(opened, type=tuple[msgspec.Raw, str | None])
        plain = bytes(found).decode()
        if self._to is None:
            return plain, plain_line
        named = {SEALED: self._to.fingerprints(fingerprint(plain) or "", where.tenant)[0]}
        return self._covered(error, opened, where, **named), line

    def _start_digest(self, part: CarriedRun, params: Where) -> str:
        """Return the digest by which a start with the same key is recognised."""
        row = part.row
        assert row is not None
        if not row.digest or RESERVED not in row.params:
            return row.digest
        plain = digest(row.type, self._from.open(row.params, params))
        if self._to is None:
            return plain
        once = Where(tenant=part.tenant, field="digest", name=str(part.id) if row.key is None else row.key)
        return self._to.digests(plain, once)[0]

    def _step(self, step: CarriedStep, of: tuple[str, UUID]) -> CarriedStep:
        fields: dict[str, Any] = {}
        if step.ask is not None and RESERVED in step.ask:
            where = places.ask(*of, step.key)
            fields = {"ask": self._whole(step.ask, where)}
            if step.digest is not None:
                plain = digest("approval", self._from.open(step.ask, where))
                fields["digest"] = plain if self._to is None else self._to.digests(plain, where)[0]
        if step.output is not None and RESERVED in step.output:
            fields["output"] = self._output(step, step.output, of)
        if step.error is not None and RESERVED in step.error:
            fields["error"] = self._step_error(step, step.error, of)
        if step.wake is not None and RESERVED in step.wake:
            wake = decode_untyped(step.wake)
            wake["event"] = decode_untyped(self._came(_json(wake["event"]), of[0], step.topic))
            fields["wake"] = _json(wake)
        return replace(step, **fields) if fields else step

    def _output(self, step: CarriedStep, output: Json, of: tuple[str, UUID]) -> Json:
        match step.kind:
            case StepKind.EVENT:
                return self._came(output, of[0], step.topic)
            case StepKind.CHILD:
                return self._ended(output, of[0])
            case _:
                return self._whole(output, places.output(*of, step.key))

    def _came(self, output: Json, tenant: str, topic: str | None) -> Json:
        """Return an event that a wait has taken."""
        event = msgspec.json.decode(output, type=dict[str, msgspec.Raw])
        name = msgspec.json.decode(event["id"])
        where = places.payload(tenant, name, topic or msgspec.json.decode(event["topic"]))
        event["payload"] = msgspec.Raw(self._whole(bytes(event["payload"]).decode(), where).encode())
        return _json(event)

    def _ended(self, output: Json, tenant: str) -> Json:
        """Return the end of a child."""
        end = msgspec.json.decode(output, type=dict[str, msgspec.Raw])
        child = msgspec.json.decode(end["run"], type=UUID)
        if "result" in end:
            where = Where(tenant=tenant, run=child, field="result")
            end["result"] = msgspec.Raw(self._whole(bytes(end["result"]).decode(), where).encode())
        if "error" in end:
            error, _ = self._failure(bytes(end["error"]).decode(), None, places.run_error(tenant, child))
            end["error"] = msgspec.Raw((error or "null").encode())
        return _json(end)

    def _step_error(self, step: CarriedStep, error: Json, of: tuple[str, UUID]) -> Json:
        """Return the error of a step. A plan's step may have that of its run."""
        if step.max_attempts is None:
            return self._veil(error, places.step_error(*of, step.key))
        try:
            return self._veil(error, places.step_error(*of, step.key))
        except CannotOpen:
            return self._failure(error, None, places.run_error(*of))[0] or error

    def _note(self, note: CarriedNote, of: tuple[str, UUID]) -> CarriedNote:
        if RESERVED not in note.data:
            return note
        if note.type == "log":
            return replace(note, data=self._veil(note.data, places.logged(*of)))
        data = msgspec.json.decode(note.data, type=dict[str, msgspec.Raw])
        if "error" in data:
            error = bytes(data["error"]).decode()
            if note.type == "step_failed":
                where = places.step_error(*of, msgspec.json.decode(data["step"]))
                opened: Json | None = self._veil(error, where)
            else:
                opened, _ = self._failure(error, None, places.run_error(*of))
            data["error"] = msgspec.Raw((opened or "null").encode())
        if note.type == "leaving":
            was = msgspec.json.decode(data["was"])
            row = was.get("row")
            if row is not None:
                row["error"], row["last_error"] = self._failure(
                    row["error"], row["last_error"], places.run_error(*of)
                )
            data["was"] = msgspec.Raw(msgspec.json.encode(was))
        return replace(note, data=_json(data))

    def _message(self, message: CarriedMessage, of: tuple[str, UUID]) -> CarriedMessage:
        payload = self._whole(message.payload, outbox.payload_place(*of, message.id))
        error = message.error and self._veil(message.error, outbox.failure_place(message.id))
        return replace(message, payload=payload, error=error)


def _json(value: object) -> Json:
    return msgspec.json.encode(value).decode()
