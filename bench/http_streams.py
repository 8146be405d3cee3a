"""Many event streams and long polls on one server process: memory, calls of the store, and other requests."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import time
from typing import Any

import uvloop

from bench.cpu import cpu_seconds
from bench.http_load import figures, get, post, sent, starts
from bench.http_processes import asked, server
from bench.measurements import Row, begun, ended, run, say, send_go, wait_for
from bench.stores import Place

QUIET_SECONDS = 10.0
EVENTS_A_SECOND = 100
LOOKS = 400  # requests whose latency is measured, one after the other
PAUSE_SECONDS = 0.02


async def followers(args: argparse.Namespace) -> dict[str, Any]:
    """Start runs; open a stream on each of some, and a long poll on each of the others; wait for a word."""
    port, keys = args.port, args.keys.split(",")
    _, bodies = await sent(port, starts(port, keys[0], "followed", 2 * args.followers), 16)
    ids = [json.loads(body)["id"] for body in bodies]
    opened = []
    received = [0]

    async def read(reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            received[0] += data.count(b"\nid: ")

    for n, id_ in enumerate(ids):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if n < args.followers:
            writer.write(get(port, f"/runs/{id_}/events", keys[1], "text/event-stream"))
        else:
            writer.write(get(port, f"/runs/{id_}/result?wait=60", keys[2]))
        opened.append((asyncio.create_task(read(reader)), writer))
        if n % 50 == 49:
            await asyncio.sleep(0.05)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, input)
    # Now events come: each changes the priority of a followed run.
    before, began = received[0], time.monotonic()
    changes = 0
    while time.monotonic() - began < QUIET_SECONDS:
        id_, changes = ids[changes % args.followers], changes + 1
        body = json.dumps({"priority": changes // args.followers % 100}).encode()
        await sent(port, iter([post(port, f"/runs/{id_}/priority", keys[0], body)]), 1)
        await asyncio.sleep(max(0.0, began + changes / EVENTS_A_SECOND - time.monotonic()))
    await asyncio.sleep(1.0)
    print("over", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, input)
    return {
        "changes": changes,
        "events": received[0] - before,
        "open": sum(not task.done() for task, _ in opened),
    }


async def looks(args: argparse.Namespace) -> dict[str, Any]:
    """Read runs one after the other, and measure the latency of each."""
    port, key = args.port, args.keys.split(",")[0]
    _, bodies = await sent(port, starts(port, key, "looked at", 10), 1)
    ids = [json.loads(body)["id"] for body in bodies]
    requests = (get(port, f"/runs/{ids[n % 10]}", key) for n in range(args.looks))
    began, used = time.perf_counter(), cpu_seconds(args.pid)
    took, _ = await sent(port, requests, 1, PAUSE_SECONDS)
    return figures(took, time.perf_counter() - began, cpu_seconds(args.pid) - used)


def streams(place: Place, count: int) -> None:
    """Measure a server process without followers, with quiet ones, and while events come."""
    with server("api", "--url", place.fresh(), "--counted") as (process, said):
        where = ("--port", said["port"], "--keys", ",".join(said["keys"]), "--pid", process.pid)
        args = (*where, "--followers", count, "--looks", LOOKS)
        run("http_streams", "looks", *args)
        alone = run("http_streams", "looks", *args)
        rss = asked(process)["rss_kib"]
        _say("alone", alone)
        with begun("http_streams", "followers", *args) as crowd:
            wait_for(crowd, "ready")
            full = _opened(process, 2 * count)
            say(f"{count} streams and {count} long polls: {(full['rss_kib'] - rss) / 1024:.1f} MiB more")
            _calls(process, QUIET_SECONDS, "while nothing happens")
            _say("beside quiet followers", run("http_streams", "looks", *args))
            send_go(crowd)
            _calls(process, QUIET_SECONDS / 2, f"while about {EVENTS_A_SECOND} events come each second")
            wait_for(crowd, "over")
            send_go(crowd)
            row = ended(crowd)
        say(f"{row['events']} events of {row['changes']} changes arrived")
        say(f"{row['open']} connections were open at the end")


def _opened(process: subprocess.Popen[str], count: int) -> Row:
    """Wait until all streams and long polls are open; return the figures of the server."""
    for _ in range(600):
        time.sleep(0.1)
        if asked(process)["streams"] == count:
            time.sleep(2)
            return asked(process)
    raise SystemExit(f"{asked(process)['streams']} of {count} streams were opened")


def _say(words: str, row: dict[str, float]) -> None:
    say(f"GET /runs/{{id}} {words}: p50 {row['ms_p50']:.1f} ms, p99 {row['ms_p99']:.1f} ms")


def _calls(process: subprocess.Popen[str], seconds: float, words: str) -> None:
    """Print how often the store was called in some seconds, and the share of a core that the server used."""
    before, used = asked(process)["calls"], cpu_seconds(process.pid)
    time.sleep(seconds)
    after, used = asked(process)["calls"], cpu_seconds(process.pid) - used
    each = {name: round((n - before.get(name, 0)) / seconds, 1) for name, n in after.items()}
    said = ", ".join(f"{name} {n}" for name, n in each.items() if n)
    say(f"{words}: calls of the store a second: {said or 'none'}; {used / seconds:.1%} of a core")


ALL = {each.__name__: each for each in (followers, looks)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(ALL))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--keys", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--followers", type=int, default=1000)
    parser.add_argument("--looks", type=int, default=LOOKS)
    arguments = parser.parse_args()
    print(json.dumps(uvloop.run(ALL[arguments.what](arguments))))
