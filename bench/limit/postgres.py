"""The bare limit on Postgres: claim, fenced checkpoints, completion, trail; group commit; no engine.

PL/pgSQL, not SQL functions: Postgres 15 plans the latter anew at each call (0.75 ms a lone step against 0.5).
"""
import argparse, asyncio, json, time, uuid

import asyncpg, msgspec, uvloop

SCHEMA = """
drop schema if exists limit_probe cascade; create schema limit_probe; set search_path = limit_probe;
create table workflow_run (
  id uuid primary key, tenant text not null default 'default', type text not null,
  payload json not null default '{}', status text not null default 'pending',
  priority int not null default 100, run_at timestamptz not null default statement_timestamp(), idempotency_key text unique,
  attempt int not null default 0, max_attempts int not null default 3,
  leased_by text, lease_until timestamptz, fence bigint not null default 0,
  waiting_on text, wait_topic text, last_error text, result json,
  created_at timestamptz not null default statement_timestamp(), updated_at timestamptz not null default statement_timestamp(), deleted_at timestamptz
) with (fillfactor = 85);
create index claim on workflow_run (type, priority, run_at, id) where status = 'pending';
create index due on workflow_run (run_at) where status = 'waiting';
create index lease on workflow_run (lease_until) where status = 'leased';
create table workflow_step (
  run_id uuid not null, seq int not null, name text not null, output json, status text not null,
  attempts int not null default 1, created_at timestamptz not null default statement_timestamp(), primary key (run_id, name));
create table workflow_event (
  id bigint generated always as identity primary key, workflow_id uuid not null, event_type text not null,
  data json, created_at timestamptz not null default statement_timestamp());
create index on workflow_event (workflow_id);

create function start(ids uuid[], types text[], payloads json[]) returns void language sql set search_path = limit_probe as $$
  with i as (insert into workflow_run (id, type, payload) select * from unnest(ids, types, payloads) returning id)
  insert into workflow_event (workflow_id, event_type) select id, 'created' from i $$;

create function claim(worker text, types text[], lim int, lease interval)
returns table (id uuid, type text, payload json, attempt int, fence bigint) language plpgsql set search_path = limit_probe as $$
  #variable_conflict use_column
  begin return query with picked as materialized (
    select p.id from unnest(types) t, lateral (
      select r.id, r.priority, r.run_at from workflow_run r
      where r.status = 'pending' and r.type = t and r.run_at <= statement_timestamp()
      order by r.priority, r.run_at, r.id limit lim for update skip locked) p
    order by p.priority, p.run_at limit lim),
  u as (
    update workflow_run r set status = 'leased', leased_by = worker, lease_until = statement_timestamp() + lease,
      fence = r.fence + 1, attempt = r.attempt + 1, updated_at = statement_timestamp()
    from picked where r.id = picked.id returning r.id, r.type, r.payload, r.attempt, r.fence),
  e as (insert into workflow_event (workflow_id, event_type, data)
        select u.id, 'leased', json_build_object('worker', worker, 'attempt', u.attempt) from u)
  select * from u; end $$;

create function checkpoint(ids uuid[], fences bigint[], seqs int[], names text[], outs json[])
returns setof uuid language plpgsql set search_path = limit_probe as $$
  begin return query with i as (select * from unnest(ids, fences, seqs, names, outs) as x(id, fence, seq, name, out)),
  held as materialized (
    select r.id from workflow_run r join (select distinct id, fence from i) d using (id)
    where r.fence = d.fence and r.status = 'leased' and r.lease_until >= statement_timestamp() order by r.id for no key update of r skip locked),
  s as (insert into workflow_step (run_id, seq, name, output, status)
        select i.id, i.seq, i.name, i.out, 'succeeded' from i join held using (id) on conflict do nothing
        returning run_id, name),
  e as (insert into workflow_event (workflow_id, event_type, data)
        select run_id, 'step_succeeded', json_build_object('step', name) from s)
  select held.id from held; end $$;

create function complete(ids uuid[], fences bigint[], results json[]) returns setof uuid language plpgsql set search_path = limit_probe as $$
  begin return query with i as (select * from unnest(ids, fences, results) as x(id, fence, result)),
  u as (
    update workflow_run r set status = 'succeeded', result = i.result, leased_by = null, lease_until = null, updated_at = statement_timestamp()
    from i where r.id = i.id and r.fence = i.fence and r.status = 'leased' and r.lease_until >= statement_timestamp() returning r.id),
  e as (insert into workflow_event (workflow_id, event_type) select u.id, 'succeeded' from u)
  select u.id from u; end $$;
"""
TYPE = "bench.noop.v1"
encode = msgspec.json.Encoder().encode


class Committer:
    """While one commit is on its way the next batch gathers."""

    def __init__(self, pool, sql, writers):
        self.pool, self.sql, self.queue, self.more = pool, sql, [], asyncio.Event()
        self.commits = self.items = 0
        self.tasks = [asyncio.create_task(self.run()) for _ in range(writers)]

    def put(self, *item):
        future = asyncio.get_running_loop().create_future()
        self.queue.append((item, future))
        self.more.set()
        return future

    async def run(self):
        while True:
            await self.more.wait()
            batch, self.queue = self.queue[:500], self.queue[500:]
            if not self.queue:
                self.more.clear()
            if not batch:
                continue
            async with self.pool.acquire() as connection:
                rows = await connection.fetch(self.sql, *zip(*(item for item, _ in batch)))
            applied = {row[0] for row in rows}
            self.commits += 1
            self.items += len(batch)
            for item, future in batch:
                future.set_result(item[0] in applied)


async def main(args):
    setup = await asyncpg.connect(args.dsn)
    await setup.execute(SCHEMA)
    await setup.close()

    async def init(connection):
        await connection.set_type_codec(
            "json", encoder=lambda b: b.decode() if isinstance(b, bytes) else b, decoder=msgspec.json.decode, schema="pg_catalog")

    pool = await asyncpg.create_pool(
        args.dsn, min_size=5, max_size=5, init=init, server_settings={"search_path": "limit_probe"})
    begun = time.perf_counter()
    ids = [uuid.uuid4() for _ in range(args.runs)]
    for at in range(0, args.runs, 500):
        part = ids[at : at + 500]
        await pool.execute("select start($1::uuid[], $2::text[], $3::json[])", part, [TYPE] * len(part), ['{"x": 1}'] * len(part))
    started, cpu = time.perf_counter(), time.process_time()
    steps = Committer(pool, "select * from checkpoint($1::uuid[], $2::bigint[], $3::int[], $4::text[], $5::json[])", 2)
    ends = Committer(pool, "select * from complete($1::uuid[], $2::bigint[], $3::json[])", 1)
    waits = []

    async def execute(claim):
        for seq in range(args.steps):
            at = time.perf_counter()
            assert await steps.put(claim["id"], claim["fence"], seq, f"step-{seq}", encode({"i": seq}))
            waits.append(time.perf_counter() - at)
        assert await ends.put(claim["id"], claim["fence"], encode({"ok": True}))

    active, done = set(), 0
    while done < args.runs:
        free = args.flight - len(active)
        if free > args.flight // 4 or not active:
            rows = await pool.fetch("select * from claim('probe'::text, $1::text[], $2::int, interval '30 s')", [TYPE], free)
            active |= {asyncio.create_task(execute(row)) for row in rows}
        finished, active = await asyncio.wait(active, return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            task.result()
        done += len(finished)
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    waits.sort()
    print(json.dumps({
        "limit": "postgres", "runs": args.runs, "steps": args.steps, "flight": args.flight,
        "starts_per_s": round(args.runs / (started - begun)), "runs_per_s": round(args.runs / took),
        "steps_per_s": round(args.runs * args.steps / took), "items_per_commit": round(steps.items / max(1, steps.commits), 1),
        "cpu_us": round(cpu / args.runs / max(1, args.steps) * 1e6, 1),
        "step_ms_p50": round(waits[len(waits) // 2] * 1e3, 2) if waits else None,
        "step_ms_p99": round(waits[int(len(waits) * 0.99)] * 1e3, 2) if waits else None}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--flight", type=int, default=300)
    uvloop.run(main(parser.parse_args()))
