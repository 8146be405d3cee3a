"""Hostile requests: bytes that a server must refuse with a 4xx, or by closing the connection."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

RUN = "01a1e9cd-e750-7323-987a-349e40ae595e"  # an id of no run
MIB = 1 << 20
TEXTS = (
    "\0",
    "\ud800",
    "\x1f",
    "\x1b[2J",
    "a\r\nset-cookie: a=b",
    "../../etc/passwd",
    "%s%n",
    "\u202e",
    "x" * 5000,
)
BAD_UTF8 = (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82", b"\x80")
NUMBERS = (
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "-Infinity",
    "9" * 4000,
    "01",
    "0x10",
    "+1",
    "1.",
    ".5",
    "1e",
)
FIELDS = (
    "type",
    "key",
    "priority",
    "run_at",
    "delay",
    "timeout",
    "max_attempts",
    "ttl",
    "budget",
    "limit_key",
    "parent",
    "labels",
    "id",
    "tenant",
)
WRONG: tuple[Any, ...] = (True, [], {}, -1, 1.5, "", None, [[]], {"a": {}}, 10**30)
GET_PATHS = (
    "/runs",
    "/runs/count",
    "/events",
    "/approvals",
    "/schedules",
    "/outbox",
    "/bulk",
    "/keys",
    "/audit",
)
QUERIES = (
    "limit",
    "cursor",
    "parent",
    "created_since",
    "after",
    "since",
    "status",
    "wait",
    "odd",
    "limit=1&limit",
)
MOVES = (
    "cancel",
    "pause",
    "resume",
    "rewind",
    "retry",
    "priority",
    "approve",
    "reject",
    "append_step",
    "rerun",
)


@dataclass(frozen=True)
class Attack:
    """One connection: its parts are sent one after the other. may_close: no answer at all is right too.

    is_cut: the request is not whole, so that the client ends the connection when no answer comes.
    """

    kind: str
    parts: tuple[bytes, ...]
    may_close: bool = False
    is_cut: bool = False


class Attacks:
    """A source of attacks: the same seed makes the same ones. cursor: a valid one of /runs, to be changed."""

    def __init__(self, seed: int, key: str, cursor: str) -> None:
        self._random, self._key, self._cursor = random.Random(seed), key, cursor
        self._kinds: Sequence[Callable[[], Attack]] = (
            self._deep,
            self._repeated,
            self._wrong,
            self._number,
            self._encoding,
            self._chunks,
            self._header,
            self._large,
            self._length,
            self._path,
            self._query,
            self._text,
            self._tampered,
            self._idempotency,
            self._auth,
            self._garbage,
            self._move,
            self._type,
        )

    def next(self) -> Attack:
        """Make one."""
        return self._random.choice(self._kinds)()

    def _head(self, method: str, target: str, *headers: str, key: str | None = None) -> bytes:
        lines = [
            f"{method} {target} HTTP/1.1",
            "host: localhost",
            f"authorization: Bearer {key or self._key}",
        ]
        return "\r\n".join([*lines, "connection: close", *headers, "", ""]).encode("utf-8", "surrogatepass")

    def _post(
        self,
        kind: str,
        body: bytes,
        target: str = "/runs",
        method: str = "POST",
        type_: str = "application/json",
    ) -> Attack:
        head = self._head(method, target, f"content-type: {type_}", f"content-length: {len(body)}")
        return Attack(kind, (head, body))

    def _start(self, kind: str, **fields: object) -> Attack:
        return self._post(kind, json.dumps({"type": "shop.order.v1", **fields}).encode())

    def _deep(self) -> Attack:
        levels = self._random.choice([70, 200, 5_000, 100_000])
        left, right = self._random.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"[{", b"")])
        value = left * levels + b"1" + right * levels
        return self._post(
            "deep JSON", self._random.choice([value, b'{"type":"shop.order.v1","params":%s}' % value])
        )

    def _repeated(self) -> Attack:
        one = self._random.choice(
            [b'"type":"shop.order.v1"', b'"params":{"a":1,"\\u0061":2}', b'"params":[{"":1,"":2}]']
        )
        return self._post("repeated key", b'{"type":"shop.order.v1",%s}' % one)

    def _wrong(self) -> Attack:
        field = self._random.choice([one for one in FIELDS if one not in {"key", "limit_key", "labels"}])
        wrong = self._random.choice(WRONG)
        if field in {"id", "tenant"} or isinstance(wrong, dict | list | bool) or wrong == "":
            return self._start("wrong type", **{field: wrong})
        return self._start("wrong type", **{field: {"value": wrong}})

    def _number(self) -> Attack:
        number = self._random.choice(NUMBERS)
        field = self._random.choice(["priority", "max_attempts", "delay", "budget"])
        return self._post("odd number", f'{{"type":"shop.order.v1","{field}":{number}}}'.encode())

    def _encoding(self) -> Attack:
        text = '{"type": "shop.order.v1", "params": "x"}'
        bad = self._random.choice(BAD_UTF8)
        body = self._random.choice(
            [
                text.encode("utf-16"),
                text.encode("utf-32"),
                text.encode("utf-8-sig"),
                bad,
                text.encode().replace(b"x", bad),
                b"\0" * 10,
                bytes(self._random.randbytes(50)),
            ]
        )
        return self._post("encoding", body)

    def _chunks(self) -> Attack:
        head = self._head("POST", "/runs", "content-type: application/json", "transfer-encoding: chunked")
        chunk = self._random.choice(
            [
                b"zz\r\n{}\r\n",
                b"-1\r\n{}\r\n0\r\n\r\n",
                b"5\r\n{}\r\n0\r\n\r\n",
                b"ffffffffffffffffff\r\n{}",
                b"2\r\n{}0\r\n\r\n",
                b"2;" + b"x" * 70_000 + b"\r\n{}\r\n0\r\n\r\n",
                b"0\r\nx: y\r\n\r\n",
            ]
        )
        return Attack("chunked garbage", (head, chunk), may_close=True, is_cut=True)

    def _header(self) -> Attack:
        size = self._random.choice([40_000, 200_000])
        header = self._random.choice(
            [
                f"x-odd: {'a' * size}",
                "\r\n".join(f"x-{n}: {'a' * 90}" for n in range(size // 100)),
                f"{'a' * size}: x",
                f"cookie: {'b=c;' * (size // 4)}",
            ]
        )
        return Attack("oversized head", (self._head("GET", "/runs", header),), may_close=True)

    def _large(self) -> Attack:
        path, size = self._random.choice(
            [("/keys", 70_000), ("/runs", 5 * MIB), (f"/runs/{RUN}/cancel", 70_000)]
        )
        body = b'{"a":"' + b"x" * size + b'"}'
        if self._random.random() < 0.5:
            return self._post("oversized body", body, path)
        head = self._head("POST", path, "content-type: application/json", "transfer-encoding: chunked")
        return Attack("oversized body", (head, b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)))

    def _length(self) -> Attack:
        said = self._random.choice(
            [
                "-1",
                "x",
                "1e3",
                "0x2",
                "2, 3",
                "2\r\ncontent-length: 3",
                "99999999999999999999999",
                "2\r\ntransfer-encoding: chunked",
                "",
                "1",
            ]
        )
        head = self._head("POST", "/runs", "content-type: application/json", f"content-length: {said}")
        return Attack("wrong Content-Length", (head, b"{}"), may_close=True, is_cut=True)

    def _path(self) -> Attack:
        path = self._random.choice(
            [
                "/../../etc/passwd",
                "/runs/../../keys/x",
                "/%2e%2e/%2e%2e/etc/passwd",
                "//etc/passwd",
                "/runs/%00",
                f"/runs/{RUN}%00/steps",
                "/runs/%ff%fe",
                "/runs/" + "a" * 9_000,
                "/runs/%",
                "/..%5c..%5cx",
                "/runs/%0d%0aset-cookie:%20a=b",
                "*",
                "http://[::1",
                "/runs/\u00e9",
                f"/runs/{RUN}/steps/../x",
            ]
        )
        return Attack("path", (self._head("GET", path),), may_close=True)

    def _query(self) -> Attack:
        value = self._random.choice(
            ["%00", "%ff", "%ed%a0%80", "9" * 400, "-1", "null", "nan", "", "x" * 5_000, "[]"]
        )
        name = self._random.choice(QUERIES)
        path = f"/runs/{RUN}/result" if name == "wait" else self._random.choice(GET_PATHS)
        return Attack(
            "query", (self._head("GET", f"{path}?odd{self._random.randrange(9)}=1&{name}={value}"),)
        )

    def _text(self) -> Attack:
        text, field = (
            self._random.choice(TEXTS[:2]),
            self._random.choice(["type", "key", "limit_key", "params", "labels"]),
        )
        return self._start("odd text", **{field: {"a": text} if field == "labels" else text})

    def _tampered(self) -> Attack:
        at = self._random.randrange(len(self._cursor))
        other = self._random.choice([one for one in "ABCxyz019_-" if one != self._cursor[at]])
        changed = f"{self._cursor[:at]}{other}{self._cursor[at + 1 :]}"
        path = self._random.choice(["/runs", "/outbox", "/schedules", "/approvals"])
        return Attack("cursor", (self._head("GET", f"{path}?limit=1&cursor={changed}"),))

    def _idempotency(self) -> Attack:
        key = self._random.choice(
            ['""', "\x01", "x" * 300, "\x7f\x1f", "a\x1fb", "a\r\nidempotency-key: b", "\xa0" * 300]
        )
        body = b'{"type":"shop.order.v1","odd":1}'
        head = self._head(
            "POST",
            "/runs",
            "content-type: application/json",
            f"idempotency-key: {key}",
            f"content-length: {len(body)}",
        )
        return Attack("Idempotency-Key", (head, body), may_close=True)

    def _auth(self) -> Attack:
        key = self._random.choice(
            [
                "",
                "x",
                "hf__",
                f"hf_{'0' * 12}_{'0' * 32}",
                f"{self._key}x",
                self._key[:-1],
                "\x00",
                "\u00e9",
                "hf_" + "a" * 9_000,
            ]
        )
        return Attack("key", (self._head("GET", "/runs", key=key or " "),), may_close=True)

    def _garbage(self) -> Attack:
        noise = bytes(self._random.randbytes(self._random.choice([1, 30, 3_000])))
        line = self._random.choice(
            [
                noise,
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
                b"GET / HTTP/9.9\r\n\r\n",
                b"GET /runs HTTP/1.1\r\n no: header\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"GET\r\n\r\n",
                b"TRACE /runs HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
                b"\r\n" * 1_000 + b"\0",
            ]
        )
        return Attack("garbage", (line + b"\r\n\r\n",), may_close=True, is_cut=True)

    def _move(self) -> Attack:
        body = self._random.choice(
            [
                b"[]",
                b"null",
                b'{"odd":1}',
                b'{"step":"\\u0000"}',
                b'{"priority":1e9}',
                b"{",
                b'{"children":"x"}',
            ]
        )
        return self._post("move", body, f"/runs/{RUN}/{self._random.choice(MOVES)}")

    def _type(self) -> Attack:
        said = self._random.choice(
            [
                "text/plain",
                "application/x-www-form-urlencoded",
                "application/json; charset=utf-16",
                "\u00e9",
                "multipart/form-data",
            ]
        )
        return self._post("Content-Type", b'{"type":"shop.order.v1"}', type_=said)


def foreign(host: str, *headers: str) -> Attack:
    """Return a request of a page of another site to a server without keys."""
    text = "\r\n".join(["GET /runs HTTP/1.1", f"host: {host}", "connection: close", *headers, "", ""])
    return Attack("other site", (text.encode(),), may_close=False)


FOREIGN = (
    *(
        foreign(host)
        for host in (
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "192.0.2.1",
            "[::1].evil",
            "x@localhost",
        )
    ),
    *(
        foreign("localhost", f"origin: {origin}")
        for origin in ("http://evil.example", "null", "http://[", "http://localhost:1")
    ),
    *(foreign("localhost", f"sec-fetch-site: {site}") for site in ("cross-site", "same-site")),
)
