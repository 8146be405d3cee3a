"""The bare round trip on Postgres: one row, one statement, one commit; one connection, one at a time."""
import argparse, asyncio, json, time, uuid

import asyncpg, uvloop

SCHEMA = """
drop schema if exists limit_probe cascade; create schema limit_probe;
create table limit_probe.bare (run_id uuid not null, seq int not null, output json, primary key (run_id, seq));
"""


async def main(args):
    connection = await asyncpg.connect(args.dsn)
    await connection.execute(SCHEMA)
    insert = await connection.prepare("insert into limit_probe.bare values ($1, $2, $3)")
    run, waits = uuid.uuid4(), []
    for seq in range(args.rows):
        at = time.perf_counter()
        await insert.fetch(run, seq, '{"i": 1}')
        waits.append(time.perf_counter() - at)
    await connection.close()
    waits.sort()
    print(json.dumps({
        "limit": "insert", "step_ms_p50": round(waits[len(waits) // 2] * 1e3, 3),
        "step_ms_p99": round(waits[int(len(waits) * 0.99)] * 1e3, 3)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--rows", type=int, default=1000)
    uvloop.run(main(parser.parse_args()))
