"""The bare round trip on Postgres: one row, one statement, one commit; each task has a connection, and sends one at a time."""
import argparse, asyncio, json, time, uuid

import asyncpg, uvloop

SCHEMA = """
drop schema if exists limit_probe cascade; create schema limit_probe;
create table limit_probe.bare (run_id uuid not null, seq int not null, output json, primary key (run_id, seq));
"""


async def task(connection, rows, waits):
    insert = await connection.prepare("insert into limit_probe.bare values ($1, $2, $3)")
    run = uuid.uuid4()
    for seq in range(rows):
        at = time.perf_counter()
        await insert.fetch(run, seq, '{"i": 1}')
        waits.append(time.perf_counter() - at)


async def main(args):
    connections = [await asyncpg.connect(args.dsn) for _ in range(args.tasks)]
    await connections[0].execute(SCHEMA)
    waits, begun = [], time.perf_counter()
    await asyncio.gather(*(task(one, args.rows // args.tasks, waits) for one in connections))
    took = time.perf_counter() - begun
    for connection in connections:
        await connection.close()
    waits.sort()
    print(json.dumps({
        "limit": "insert", "starts_per_s": round(len(waits) / took), "step_ms_p50": round(waits[len(waits) // 2] * 1e3, 3),
        "step_ms_p99": round(waits[int(len(waits) * 0.99)] * 1e3, 3)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=1)
    uvloop.run(main(parser.parse_args()))
