"""A real server on loopback, in a thread of its own, and raw requests to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from contextlib import contextmanager

from holdfast.http.server import asgi
from holdfast.http.serving import Server


@contextmanager
def served(app, *, prepare=None, proxies=(), connections=None, wrap=None, tls=None, **options):
    """Serve an app; yield its port, and a function that runs coroutine functions on the server's loop. wrap:
    makes the application around the API. tls: files of a certificate and its key.
    """
    loop, ready, stop, found = asyncio.new_event_loop(), threading.Event(), asyncio.Event(), {}
    closing = []

    async def serve():
        await app.store.open()
        if prepare is not None:
            await prepare()
        made = asgi(app, **options)
        if wrap is not None:
            api, made = made.api, wrap(made)
            made.api = api
            closing.append(api.close)  # a mounted application is not told of the end
        server = Server(made, "127.0.0.1", 0, proxies=proxies, connections=connections, tls=tls)
        await server.begin()
        found["port"], found["server"] = server.port, server
        ready.set()
        await stop.wait()
        await server.stop()
        for close in closing:
            await close()
        await app.store.close()

    def run():
        try:
            loop.run_until_complete(serve())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(30)

    def call(verb, *args, **kwargs):
        return asyncio.run_coroutine_threadsafe(verb(*args, **kwargs), loop).result(30)

    try:
        yield found["port"], call
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def ask(port, method, path, key=None, body=None, **headers):
    """Send one request on a connection of its own; return status, headers and JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            given["authorization"] = f"Bearer {key}"
        text = None
        if body is not None:
            given.setdefault("content-type", "application/json")
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, text, given)
        response = connection.getresponse()
        data = response.read()
        is_json = "json" in response.headers.get("content-type", "")
        return response.status, dict(response.headers), json.loads(data) if is_json and data else data
    finally:
        connection.close()


def raw(port, *parts, seconds=5.0, pause=0.0):
    """Send bytes as they are; return all that comes back until the server closes or nothing comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link:
        answer = b""
        try:
            for part in parts:
                link.sendall(part)
                if pause:
                    threading.Event().wait(pause)
            while part := link.recv(65536):
                answer += part
        except (TimeoutError, ConnectionError):
            pass
        return answer
