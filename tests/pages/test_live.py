"""Live parts: one reader for all who look at the same view, real pauses, tokens of each visitor."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from holdfast.http.pages import live
from holdfast.http.pages.current import Visitor
from holdfast.http.pages.page import PAGES
from holdfast.http.pages.pagecall import PageCall, Place
from holdfast.http.pages.views import reading, runs
from holdfast.http.problems import Refusal
from holdfast.http.server import asgi
from holdfast.records import RunFilter
from tests.http.kit import shop


@pytest.fixture
def pages():
    return asgi(shop(), open=True).pages


def call(pages, path="/runs", query=(), csrf="token"):
    place = Place("", path, {}, list(query))
    visitor = Visitor(actor=pages.api.access.open_actor, session="", csrf=csrf)
    return PageCall(pages.api, pages.settings, PAGES[path], place, visitor, "id")


def parts(event):
    assert event.startswith(b"data: ")
    return json.loads(event[6:])


def test_all_who_look_at_one_view_share_one_reader(pages):
    async def look():
        await pages.api.open()
        pages.views.seconds = 0.01
        await pages._parts(call(pages))  # the templates are compiled: a slow first read would rest for long
        streams = [pages.views.follow(call(pages, csrf=f"t{n}")) for n in range(20)]
        other = pages.views.follow(call(pages, query=[("status", "failed")]))
        await pages.api.client.start("shop.quick.v1", delay=60)
        for number, one in enumerate([*streams, other]):
            seen = await anext(one) if number < 20 else None
            assert seen is None or len([id_ for id_ in parts(seen)["parts"] if id_.startswith("row-")]) == 1
        assert len(pages.views._readers) == 1
        before = pages.views.reads
        await asyncio.sleep(0.2)
        reads = pages.views.reads - before
        assert 1 <= reads <= 25  # one reader, not twenty
        await pages.api.client.start("shop.quick.v1", delay=60)
        news = await asyncio.gather(*(anext(one) for one in streams))
        assert {len(parts(one)["parts"]) for one in news} == {1}  # only what differs
        for one in streams:
            await one.aclose()
        await other.aclose()
        before = pages.views.reads
        await asyncio.sleep(0.05)
        assert (len(pages.views._readers), pages.views.reads) == (0, before)  # a pause is real
        await pages.api.close()

    asyncio.run(look())


def test_a_part_has_the_token_of_each_visitor(pages):
    async def look():
        await pages.api.open()
        run = await pages.api.client.bulk.cancel(RunFilter(), by="me")
        place = Place("", f"/bulk/{run.id}", {"run": str(run.id)}, [])
        found = []
        for csrf in ("mine", "theirs"):
            visitor = Visitor(actor=pages.api.access.open_actor, session="", csrf=csrf)
            made = PageCall(pages.api, pages.settings, PAGES["/bulk/{run}"], place, visitor, "id")
            stream = pages.views.follow(made)
            found.append(parts(await anext(stream))["parts"]["state"])
            await stream.aclose()
        assert 'value="mine"' in found[0]
        assert 'value="theirs"' in found[1]
        await pages.api.close()

    asyncio.run(look())


def test_a_view_that_is_gone_ends_its_streams(pages):
    async def look():
        await pages.api.open()
        pages.views.seconds = 0.01
        run = await pages.api.client.bulk.cancel(RunFilter(), by="me")
        place = Place("", f"/bulk/{run.id}", {"run": str(run.id)}, [])
        visitor = Visitor(actor=pages.api.access.open_actor, session="", csrf="x")
        stream = pages.views.follow(
            PageCall(pages.api, pages.settings, PAGES["/bulk/{run}"], place, visitor, "id")
        )
        await anext(stream)
        await pages.api.client.delete(run.id)
        while not (event := await anext(stream)).startswith(b"event: end"):
            assert event.startswith(b"data: ")
        await pages.api.close()

    asyncio.run(look())


def test_the_stream_of_a_run_that_is_deleted_ends(pages):
    async def look():
        await pages.api.open()
        pages.views.seconds = 0.01
        run = (await pages.api.client.start("shop.quick.v1", delay=60)).id
        place = Place("", f"/runs/{run}", {"run": str(run)}, [])
        visitor = Visitor(actor=pages.api.access.open_actor, session="", csrf="x")
        stream = pages.views.follow(
            PageCall(pages.api, pages.settings, PAGES["/runs/{run}"], place, visitor, "id")
        )
        await anext(stream)
        await pages.api.client.delete(run)
        async with asyncio.timeout(5):
            while not (event := await anext(stream)).startswith(b"event: end"):
                assert parts(event)["parts"]
        await pages.api.close()

    asyncio.run(look())


def test_a_deleted_run_has_no_live_page(visit):
    run = visit.kit.run(visit.kit.app.start, "shop.quick.v1", delay=60).id
    assert "data-live" in visit.text(f"/runs/{run}")
    visit.kit.run(visit.kit.app.delete, run)
    assert "data-live" not in visit.text(f"/runs/{run}")


def test_a_change_while_an_event_is_sent_is_not_missed(pages):
    async def look():
        await pages.api.open()
        await pages.api.client.start("shop.quick.v1", delay=60)
        stream = pages.views.follow(call(pages))
        first = parts(await anext(stream))
        assert first["all"]
        (reader,) = pages.views._readers.values()
        reader.show({"row-1": "x"})  # the follower is still busy with the first event
        async with asyncio.timeout(0.5):
            second = parts(await anext(stream))
        assert second == {"parts": {"row-1": "x"}, "gone": list(first["parts"]), "all": False}
        await pages.api.close()

    asyncio.run(look())


def test_an_empty_view_says_that_it_is_empty(pages):
    async def look():
        await pages.api.open()
        stream = pages.views.follow(call(pages))
        async with asyncio.timeout(1):
            assert parts(await anext(stream)) == {"parts": {}, "gone": [], "all": True}
        await pages.api.close()

    asyncio.run(look())


def test_a_stream_of_a_page_is_an_event_stream(visit):
    with visit.client.stream("GET", "/ui/sign-in", headers={"accept": "text/event-stream"}) as response:
        assert response.status_code == 200  # it is not live: a page
    response = visit.client.get("/ui/nothing", headers={"accept": "text/event-stream"})
    assert (response.status_code, response.text) == (404, "")


def test_a_server_that_stops_ends_its_streams_and_readers(pages):
    async def look():
        await pages.api.open()
        await pages.api.client.start("shop.quick.v1", delay=60)
        stream = pages.views.follow(call(pages))
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream, None))
        await asyncio.sleep(0)
        (reader,) = pages.views._readers.values()
        await pages.api.stop()
        async with asyncio.timeout(1):
            assert await waiting is None  # no event `end`: the browser comes back to another server
        await asyncio.sleep(0)
        assert reader.task.done()
        assert pages.views._readers == {}
        await pages.api.close()

    asyncio.run(look())


def test_one_tenant_cannot_take_all_views(pages, monkeypatch):
    monkeypatch.setattr(live, "VIEWS_PER_TENANT", 3)

    async def look():
        await pages.api.open()
        for tenant in ("default", "acme"):
            await pages.api.client.of(tenant).start("shop.quick.v1", delay=60)
        streams = [pages.views.follow(call(pages, query=[("x", str(n))])) for n in range(3)]
        for one in streams:
            await anext(one)
        with pytest.raises(Refusal, match="of a tenant"):
            await anext(pages.views.follow(call(pages, query=[("x", "more")])))
        await anext(pages.views.follow(call(pages, query=[("x", "1")])))  # a known view is joined
        theirs = call(pages)
        theirs.actor = msgspec.structs.replace(theirs.actor, tenant="acme")
        await anext(pages.views.follow(theirs))
        await pages.api.close()

    asyncio.run(look())


def test_one_key_cannot_take_all_views_of_its_tenant(pages, monkeypatch):
    monkeypatch.setattr(live, "VIEWS_PER_KEY", 2)

    def of_key(name, query):
        made = call(pages, query=[("x", query)])
        made.actor = msgspec.structs.replace(made.actor, key_id=name)
        return pages.views.follow(made)

    async def look():
        await pages.api.open()
        streams = [of_key("one", query) for query in "abb"]
        for stream in streams:
            await anext(stream)
        await anext(of_key("two", "c"))
        with pytest.raises(Refusal, match="this key follows 2 different views"):
            await anext(of_key("one", "c"))  # also of a view that others follow
        await streams[1].aclose()
        with pytest.raises(Refusal):
            await anext(of_key("one", "c"))  # the same view twice is one view
        await streams[2].aclose()
        await anext(of_key("one", "c"))
        await pages.api.close()

    asyncio.run(look())


def test_few_views_are_read_at_once(pages, monkeypatch):
    busy, most = 0, 0

    async def slow(call):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.005)
        busy -= 1
        return {"part": "x"}

    monkeypatch.setattr(pages.views, "_parts", slow)

    async def look():
        await pages.api.open()
        streams = [pages.views.follow(call(pages, query=[("x", str(n))])) for n in range(10)]
        await asyncio.gather(*(anext(one) for one in streams))
        assert most == live.READERS
        await pages.api.close()

    asyncio.run(look())


def test_a_list_that_is_not_found_in_time_is_said_and_not_live(visit, monkeypatch):
    monkeypatch.setattr(reading, "LIST_SECONDS", 0.02)
    monkeypatch.setattr(runs, "LIST_SECONDS", 0.02)
    store = visit.kit.app.store

    async def endless(*_):
        await asyncio.sleep(60)

    monkeypatch.setattr(store, "list", endless)
    monkeypatch.setattr(store, "outlines", endless)
    text = visit.text("/runs?q=label%3Denv%3Dprod+roots")
    assert "there are more runs to look at" in text
    assert "q=label%3Denv%3Dprod+created-since%3D1h+roots" in text
    assert "data-live" not in text
    assert "No run matches" not in text
    assert 'action="/ui/runs/bulk"' in text
    preview = visit.text("/runs/bulk?q=label%3Denv%3Dprod+roots&verb=cancel")
    assert "could not be counted" in preview
    assert "count them for" in preview
    monkeypatch.setattr(runs, "COUNT_SECONDS", 0.02)
    longer = visit.text("/runs/bulk?q=label%3Denv%3Dprod+roots&verb=cancel&count=all")
    assert "could not be counted" in longer
    assert "count them for" not in longer
    assert "holdfast cancel --where" in longer
    for path in ("/events", "/workers"):
        visit.text(path)


def test_the_stream_of_a_slow_view_ends(pages, monkeypatch):
    monkeypatch.setattr(reading, "LIST_SECONDS", 0.02)

    async def look():
        await pages.api.open()

        async def endless(*_):
            await asyncio.sleep(60)

        monkeypatch.setattr(pages.api.store, "list", endless)
        stream = pages.views.follow(call(pages))
        async with asyncio.timeout(2):
            assert (await anext(stream)).startswith(b"event: end")
        await pages.api.close()

    asyncio.run(look())


def test_two_reads_of_latencies_take_each_row_once(pages):
    async def look():
        await pages.api.open()
        latencies, client = pages.api.latencies, pages.api.client
        await latencies.read("default")
        run = await client.start("shop.quick.v1", delay=60)
        store, taken = pages.api.store, []
        follow_all = store.follow_all

        async def slow(*args):
            taken.append(args[2])
            page = await follow_all(*args)
            await asyncio.sleep(0.01)
            return page

        store.follow_all = slow
        await client.cancel(run.id)
        await asyncio.gather(latencies.read("default"), latencies.read("default"))
        assert taken[0] < taken[1]
        await pages.api.close()

    asyncio.run(look())
