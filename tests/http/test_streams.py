"""Streams and long polls: live, resumed, of foreign and deleted runs, ended with their key; bounded."""

from __future__ import annotations

import socket
import time

import pytest

from holdfast.errors import TooManySubscribers, Unavailable
from holdfast.http.access import Actor
from holdfast.http.limits import Streams
from holdfast.http.problems import Refusal
from holdfast.records import ANY, Scope
from tests.http.kit import Kit, new_key, shop
from tests.http.real import ask, raw, served

RUN = {"type": "shop.quick.v1", "delay": 3600}
STREAM = {"accept": "text/event-stream"}


OPEN = []


@pytest.fixture(autouse=True)
def _closed():
    yield
    while OPEN:
        OPEN.pop().close()


class Line:
    """One connection that reads a stream."""

    def __init__(self, port, path, key, headers=""):
        OPEN.append(self)
        self.link = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.link.sendall(
            f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n"
            f"authorization: Bearer {key}\r\n{headers}\r\n".encode()
        )
        self.text = b""

    def until(self, words):
        """Read until some bytes have come; b"" means until the end."""
        while not words or words not in self.text:
            if not (part := self.link.recv(65536)):
                assert not words, self.text
                break
            self.text += part
            if not words and self.text.endswith(b"0\r\n\r\n"):
                break
        return self.text

    def close(self):
        self.link.close()


@pytest.fixture
def server():
    app = shop()
    with served(app) as (port, call):
        keys = {}

        def key(*scopes, **options):
            made, text = call(
                new_key, app.store, options.pop("tenant", "default"), scopes or [*Scope][:-1], **options
            )
            keys[text] = made.id
            return text

        def revoke(text):
            call(app.store.revoke_key, keys[text], ANY)

        yield port, call, key, revoke, app


@pytest.mark.spec("HTTP-2")
@pytest.mark.slow
def test_a_trail_is_streamed_live_and_resumed(server):
    port, _, key, _, _ = server
    mine = key()
    run = ask(port, "POST", "/runs", mine, RUN)[2]["id"]
    line = Line(port, f"/runs/{run}/events", mine)
    line.until(b'"type":"created"')
    ask(port, "POST", f"/runs/{run}/pause", mine, {})
    text = line.until(b'"type":"paused"')
    ids = [int(one.split(b"\n")[0]) for one in text.split(b"\nid: ")[1:]]
    assert ids == sorted(set(ids))
    line.close()
    ask(port, "POST", f"/runs/{run}/cancel", mine, {})
    again = Line(port, f"/runs/{run}/events", mine, f"last-event-id: {ids[-1]}\r\n").until(b"event: end")
    assert b'"type":"created"' not in again
    assert b'"type":"cancelled"' in again
    assert b'"status":"cancelled"' in again
    last = max(int(one.split(b"\n")[0]) for one in again.split(b"\nid: ")[1:])
    status, _, _ = ask(port, "GET", f"/runs/{run}/events", mine, **STREAM, last_event_id=str(last))
    assert status == 204


@pytest.mark.spec("HTTP-2", "TEN-2")
@pytest.mark.slow
def test_a_stream_of_all_shows_one_tenant(server):
    port, _, key, _, _ = server
    mine, theirs = key(), key(tenant="other")
    line = Line(port, "/events?after=0", mine)
    ask(port, "POST", "/runs", theirs, {**RUN, "key": "foreign"})
    run = ask(port, "POST", "/runs", mine, RUN)[2]["id"]
    text = line.until(run.encode())
    other = ask(port, "GET", "/runs", theirs)[2]["items"][0]["id"]
    ask(port, "POST", f"/runs/{run}/pause", mine, {})
    assert other.encode() not in line.until(b'"type":"paused"')
    assert text
    line.close()


@pytest.mark.spec("TEN-2", "HTTP-2")
@pytest.mark.slow
def test_a_foreign_run_has_no_stream_and_a_deleted_one_ends(server):
    port, _, key, _, _ = server
    mine, theirs = key(), key(tenant="other")
    run = ask(port, "POST", "/runs", theirs, RUN)[2]["id"]
    answers = [ask(port, "GET", f"/runs/{id_}/events", mine, **STREAM)
               for id_ in (run, "01a1e9cd-e750-7323-987a-349e40ae595e")]  # fmt: skip
    assert [one[0] for one in answers] == [404, 404]
    assert [one[2]["detail"][:-36] for one in answers] == ["there is no run "] * 2
    line = Line(port, f"/runs/{run}/events", theirs)
    line.until(b"created")
    ask(port, "DELETE", f"/runs/{run}", theirs)
    assert b'"status":null' in line.until(b"event: end")
    assert ask(port, "GET", f"/runs/{run}/events", theirs)[0] == 404


@pytest.mark.spec("TEN-1", "HTTP-2")
@pytest.mark.slow
def test_a_revoked_key_ends_its_streams_and_long_polls(server):
    port, _, key, revoke, _ = server
    mine, other = key(), key()
    run = ask(port, "POST", "/runs", mine, RUN)[2]["id"]
    lines = [Line(port, f"/runs/{run}/events", mine), Line(port, "/events?after=0", mine)]
    stays = Line(port, f"/runs/{run}/events", other)
    poll = Line(port, f"/runs/{run}/result?wait=60", mine)
    for line in (*lines, stays):
        line.until(b"created")
    began = time.monotonic()
    revoke(mine)
    for line in lines:
        line.until(b"")
    assert b"401" in poll.until(b"unauthenticated")
    assert time.monotonic() - began < 5
    ask(port, "POST", f"/runs/{run}/pause", other, {})
    stays.until(b"paused")
    assert b"paused" not in b"".join(line.text for line in lines)
    assert ask(port, "GET", "/runs", mine)[0] == 401
    stays.close()


@pytest.mark.spec("TEN-3")
@pytest.mark.slow
def test_streams_are_bounded_and_given_back():
    app = shop()
    with served(app, streams=Streams(3, 2)) as (port, call):
        mine, other = (call(new_key, app.store, "default", [*Scope][:-1])[1] for _ in range(2))
        lines = [Line(port, "/events?after=0", mine) for _ in range(2)]
        for line in lines:
            line.until(b"retry: 1000")
        status, headers, problem = ask(port, "GET", "/events", mine, **STREAM)
        assert (status, problem["code"]) == (429, "streams-limit")
        assert "retry-after" in {name.lower() for name in headers}
        lines.append(Line(port, "/events?after=0", other))
        lines[-1].until(b"retry: 1000")
        assert ask(port, "GET", "/events", other, **STREAM)[0] == 429
        for line in lines:
            line.close()
        for _ in range(100):
            line = Line(port, "/events?after=0", mine)
            if b"200 OK" in line.until(b"\r\n\r\n"):
                line.close()
                break
            line.close()
            time.sleep(0.05)
        else:
            pytest.fail("the streams were never given back")


@pytest.mark.spec("HTTP-2")
@pytest.mark.slow
def test_head_opens_no_stream(server):
    port, _, key, _, _ = server
    lines = ("HEAD /events HTTP/1.1", "host: localhost", "accept: text/event-stream", "connection: close",
             f"authorization: Bearer {key()}", "", "")  # fmt: skip
    answer = raw(port, "\r\n".join(lines).encode())
    assert b"200 OK" in answer
    assert b"application/json" in answer


@pytest.mark.spec("HTTP-2")
def test_a_page_of_the_trail_is_followed_by_the_next():
    with Kit() as kit:
        key = kit.key()
        run = kit.ask("POST", "/runs", key, json=RUN).json()["id"]
        kit.ask("POST", f"/runs/{run}/pause", key, json={})
        first = kit.ask("GET", f"/runs/{run}/events", key, params={"limit": 1}).json()
        second = kit.ask("GET", f"/runs/{run}/events", key, params={"after": first["next"]}).json()
        assert [one["type"] for one in (*first["items"], *second["items"])] == ["created", "paused"]
        end = kit.ask("GET", f"/runs/{run}/events", key, params={"after": second["next"]}).json()
        assert end == {"items": [], "next": None}
        since = kit.ask("GET", "/events", key, params={"since": "2199-01-01T00:00:00Z"}).json()
        assert since["items"] == []


@pytest.mark.spec("TEN-3")
@pytest.mark.slow
def test_a_stream_that_nobody_reads_ends_with_its_key(monkeypatch):
    async def flood(*_):
        while True:
            yield b": " + b"x" * 60_000 + b"\n\n"

    monkeypatch.setattr("holdfast.http.api.live._all_followed", flood)
    app, streams = shop(), Streams()
    with served(app, streams=streams) as (port, call):
        made, mine = call(new_key, app.store, "default", [*Scope][:-1])
        line = Line(port, "/events?after=0", mine)
        _until(lambda: streams.count)
        time.sleep(1)  # by now the buffers are full
        call(app.store.revoke_key, made.id, ANY)
        _until(lambda: not streams.count)
        last = b""
        while part := line.link.recv(65536):
            last = part
        assert not last.endswith(b"0\r\n\r\n")  # it was dropped: no orderly end


def _until(is_so, seconds=15):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.spec("HTTP-2", "HTTP-4")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status"), [(TooManySubscribers(5), 429), (Unavailable("away"), 503), (ValueError("odd"), 500)]
)
def test_a_stream_that_cannot_begin_is_a_problem(error, status, monkeypatch):
    async def broken(*_):
        raise error
        yield b""

    monkeypatch.setattr("holdfast.http.api.live._all_followed", broken)
    app, streams = shop(), Streams()
    with served(app, streams=streams) as (port, call):
        mine = call(new_key, app.store, "default", [*Scope][:-1])[1]
        assert ask(port, "GET", "/events", mine, **STREAM)[0] == status
        assert not streams.count


@pytest.mark.spec("HTTP-2")
@pytest.mark.slow
def test_an_error_inside_a_stream_is_logged(monkeypatch, caplog):
    async def broken(*_):
        yield b": one\n\n"
        raise ValueError("a bug")

    monkeypatch.setattr("holdfast.http.api.live._all_followed", broken)
    app = shop()
    with served(app) as (port, call):
        mine = call(new_key, app.store, "default", [*Scope][:-1])[1]
        Line(port, "/events", mine).until(b"")
    assert "a bug" in caplog.text


@pytest.mark.spec("HTTP-2", "TEN-3")
@pytest.mark.slow
def test_a_long_poll_ends_when_its_client_leaves(caplog):
    app, streams = shop(), Streams()
    with served(app, streams=streams) as (port, call):
        mine = call(new_key, app.store, "default", [*Scope][:-1])[1]
        run = ask(port, "POST", "/runs", mine, RUN)[2]["id"]
        line = Line(port, f"/runs/{run}/result?wait=60", mine)
        _until(lambda: streams.count)
        line.close()
        _until(lambda: not streams.count)
        assert ask(port, "GET", f"/runs/{run}/result?wait=0.1", mine)[0] == 202
        assert not call(app.audit)
    assert not caplog.text


@pytest.mark.spec("TEN-3")
def test_streams_of_a_tenant_are_bounded():
    streams = Streams(10, 5, 2)
    mine, other = (Actor(key_id=id_, name="", tenant="a", scopes=frozenset()) for id_ in "xy")
    foreign = Actor(key_id="z", name="", tenant="b", scopes=frozenset())
    streams.take(mine)
    streams.take(other)
    with pytest.raises(Refusal, match="a tenant may have 2"):
        streams.take(mine)
    streams.take(foreign)
    streams.give_back(other)
    streams.take(mine)
