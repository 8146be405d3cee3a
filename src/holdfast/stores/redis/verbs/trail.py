"""trail, follow and follow_all: the rows of the trail, once or again and again."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast import bounds
from holdfast.bounds import BATCH_BYTES, Quota, page
from holdfast.errors import Unavailable
from holdfast.lifecycle import FINAL
from holdfast.records import Followed, Instant, Tenant, TrailEntry, TrailPage, moment, tenant_name
from holdfast.records.sizes import entry_bytes
from holdfast.stores.redis.core import TRIES
from holdfast.stores.redis.names import Names
from holdfast.stores.redis.rows import RunRow, trail_row, trail_word
from holdfast.stores.redis.snapshot import Command

from .shown import Showing

PAGE = 500  # rows that are read at once

Place = tuple[int, UUID, str]  # number, run and type of a row


class TrailVerbs(Showing):
    """The reads of the trail, as a mixin of the store."""

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> list[TrailEntry]:
        name, found, size = tenant_name(tenant), list[TrailEntry](), 0
        since, until = (None if at is None else moment(at) for at in between)

        def keep(entries: Sequence[TrailEntry]) -> bool:
            nonlocal size
            found.extend(
                entry for entry in entries
                if (not types or entry.type in types)
                and (since is None or entry.at >= since) and (until is None or entry.at < until)
            )  # fmt: skip
            size = sum(map(entry_bytes, found)) if found else 0
            return len(found) >= limit or size > BATCH_BYTES

        if run is not None:
            (row,) = await self._rows([run], small=True)
            if row is None or row.deleted_at is not None or name not in {None, row.tenant}:
                return []
            while (entries := await self._rows_of(run, after, PAGE)) and not keep(entries):
                after = entries[-1].seq
        else:
            while places := await self._places(after, PAGE):
                if keep(await self._entries(await self._seen(places, name, types))):
                    break
                after = places[-1][0]
        return page(found, entry_bytes, limit)

    async def follow(
        self, runs: Sequence[tuple[UUID, int]], tenant: Tenant, limit: int = 1000, bytes: int = BATCH_BYTES
    ) -> list[Followed]:
        name, quota, found = tenant_name(tenant), Quota(entry_bytes, limit, bytes), list[Followed]()
        rows = dict(
            zip([run for run, _ in runs], await self._rows([run for run, _ in runs], small=True), strict=True)
        )
        presents = await self._presents([row for row in rows.values() if row is not None])
        asked = [_rows_after(self._names, run, after, 1) for run, after in runs]
        first = await self._connections.ask(asked) if runs else []
        for (run, after), news in zip(runs, first, strict=True):
            row = rows[run]
            if row is None or row.deleted_at is not None or name not in {None, row.tenant}:
                found.append(Followed(run=run, gone=True))
                continue
            present = presents[run]
            if news or row.status in FINAL or present != run:
                entries: list[TrailEntry] = []
                if news:
                    read, entries = await self._at_one_instant(row, after, max(1, quota.rows + 1))
                    if read is None or read.deleted_at is not None:
                        found.append(Followed(run=run, gone=True))
                        continue
                    present = present if read is row else (await self._presents([read]))[run]
                    row = read
                taken, more = quota.take(entries)
                found.append(
                    Followed(
                        run=run, tenant=row.tenant, status=row.status, present=present, entries=taken,
                        more=more,
                    )
                )  # fmt: skip
        return found

    async def _at_one_instant(
        self, row: RunRow, after: int, limit: int
    ) -> tuple[RunRow | None, list[TrailEntry]]:
        """Return rows of the trail, and the run as it was then: it is read again if it has moved meanwhile.
        A run that was seen as ended, with the row that says that it goes on, would end a live trail."""
        name, read = self._names.run(row.id), row
        for _ in range(TRIES):
            members, rev = await self._connections.ask(
                [_rows_after(self._names, row.id, after, limit), ("HGET", name, "rev")]
            )
            if rev == str(read.rev):
                return read, [_entry(row.id, member) for member in members]
            (again,) = await self._rows([row.id], small=True)
            if again is None:
                return None, []
            read = again
        raise Unavailable(f"{self.address.shown}: run {row.id} has moved {TRIES} times while it was read")

    async def _presents(self, rows: Sequence[RunRow]) -> dict[UUID, UUID]:
        asked = [("HGET", self._names.run(row.chain_id), "present") for row in rows]
        answers = await self._connections.ask(asked) if asked else []
        return {
            row.id: row.chain_id if present is None else UUID(present)
            for row, present in zip(rows, answers, strict=True)
        }

    async def follow_all(
        self,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int | None = None,
        limit: int = 1000,
        bytes: int = BATCH_BYTES,
    ) -> TrailPage:
        (newest,) = await self._connections.ask([("HGET", self._names.numbers, "trail")])
        if after is None:
            return TrailPage(seq=int(newest or 0))
        looked = await self._places(after, bounds.SCAN_ROWS + 1)
        has_more, looked = len(looked) > bounds.SCAN_ROWS, looked[: bounds.SCAN_ROWS]
        quota = Quota(entry_bytes, limit, bytes)
        found: list[TrailEntry] = []
        seen = await self._seen(looked, tenant_name(tenant), types)
        for at in range(0, len(seen), PAGE):
            taken, is_cut = quota.take(await self._entries(seen[at : at + PAGE]))
            found += taken
            if is_cut:
                return TrailPage(entries=tuple(found), seq=found[-1].seq if found else after, more=True)
        if has_more:
            return TrailPage(entries=tuple(found), seq=looked[-1][0], more=True)
        last = looked[-1][0] if looked else after
        return TrailPage(entries=tuple(found), seq=max(after, last, int(newest or 0)))

    # Rows.

    async def _rows_of(self, run: UUID, after: int, limit: int) -> list[TrailEntry]:
        (members,) = await self._connections.ask([_rows_after(self._names, run, after, limit)])
        return [_entry(run, member) for member in members]

    async def _places(self, after: int, limit: int) -> list[Place]:
        (members,) = await self._connections.ask(
            [("ZRANGEBYSCORE", self._names.trail, f"({after}", "+inf", "LIMIT", 0, limit)]
        )
        found = (member.split(" ", 2) for member in members)
        return [(int(seq), UUID(run), trail_word(what)) for seq, run, what in found]

    async def _seen(self, places: Sequence[Place], tenant: str | None, types: Sequence[str]) -> list[Place]:
        """Return the rows that a tenant may see. Over all tenants it is the audit: with deleted runs."""
        places = [place for place in places if not types or place[2] in types]
        if tenant is None:
            return places
        runs = [*dict.fromkeys(run for _, run, _ in places)]
        asked = [("HMGET", self._names.run(run), "tenant", "deleted_at") for run in runs]
        answers = await self._connections.ask(asked) if asked else []
        mine = {
            run for run, (name, gone) in zip(runs, answers, strict=True) if name == tenant and gone is None
        }
        return [place for place in places if place[1] in mine]

    async def _entries(self, places: Sequence[Place]) -> list[TrailEntry]:
        asked = [("ZRANGEBYSCORE", self._names.trail_of(run), seq, seq) for seq, run, _ in places]
        answers = await self._connections.ask(asked) if asked else []
        return [
            _entry(run, members[0]) for (_, run, _), members in zip(places, answers, strict=True) if members
        ]


def _rows_after(names: Names, run: UUID, after: int, limit: int) -> Command:
    return ("ZRANGEBYSCORE", names.trail_of(run), f"({after}", "+inf", "LIMIT", 0, limit)


def _entry(run: UUID, member: str) -> TrailEntry:
    seq, what, at, data = trail_row(member)
    return TrailEntry(seq=seq, run=run, type=what, at=moment(at), data_json=data)
