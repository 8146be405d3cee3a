-- Relays: they take messages that are due, the first of each queue first, and report the outcome.
--
-- They skip rows that another session has locked. They look for a state (pending and due), so that a message that was
-- committed late is found too, and a message of a relay that died becomes due again.

-- The sinks that a relay serves. A function has precedence over a webhook of the same name.
create or replace function served_sinks(sinks json, webhooks boolean) returns table (name text, own boolean)
language sql stable as $$
    select distinct s, true from json_array_elements_text(sinks) as s
    union all
    select w.name, false from workflow_webhook as w
    where webhooks and w.name not in (select s from json_array_elements_text(sinks) as s)
$$;

-- Null: the value is not a list, so there is no restriction.
create or replace function names_of(list json) returns text[] language plpgsql immutable as $$
begin
    return case when json_typeof(list) = 'array' then array(select distinct json_array_elements_text(list)) end;
end $$;

-- The due messages without those in `past`: of each sink, by its index, as many as it has capacity for; then the sinks
-- take turns. Functions may be restricted to some tenants. The order is that of one index, written so that no other
-- index has it, and sorting is off: a planner that has seen an empty table may choose any.
create or replace function due_messages(ask json, now timestamptz, passed bigint[]) returns bigint[]
language plpgsql as $$
#variable_conflict use_column
declare
    most bigint := greatest(0, (ask ->> 'limit')::bigint);
    whose text[] := names_of(ask -> 'tenants');
begin
    return array(
        with bounded as (
            select s.name, s.own, coalesce((ask -> 'taken' ->> s.name)::bigint, 0) as taken,
                coalesce((ask -> 'bounds' ->> s.name)::bigint, (ask ->> 'each')::bigint) as bound
            from served_sinks(ask -> 'sinks', (ask ->> 'webhooks')::boolean) as s
        ),
        served as materialized (select *, bound - taken as room from bounded where bound > taken),
        found as (
            select s.name, s.taken, s.room, m.seq, m.next_at
            from served as s cross join lateral (
                select o.seq, o.next_at from workflow_outbox as o
                where o.sink = s.name and o.status = 'pending' and not o.behind and o.next_at <= now
                    and o.seq <> all(passed)
                order by o.next_at, o.seq limit least(s.room, most)
            ) as m
            where whose is null or not s.own
            union all
            select s.name, s.taken, s.room, m.seq, m.next_at
            from served as s cross join unnest(whose) as t(tenant) cross join lateral (
                select o.seq, o.next_at from workflow_outbox as o
                where o.sink = s.name and o.tenant >= t.tenant and o.tenant <= t.tenant
                    and o.status = 'pending' and not o.behind and o.seq <> all(passed)
                order by o.tenant, o.next_at, o.seq limit least(s.room, most)
            ) as m
            where s.own and m.next_at <= now
        ),
        placed as (select *, row_number() over (partition by name order by next_at, seq) as place from found)
        select seq from placed where place <= room order by taken + place, next_at, seq limit most
    );
end $$;

-- Lock those messages that are still due and that no other session has locked; they belong to this relay until the
-- commit. They are found by their numbers alone: a condition inside `coalesce` uses no index.
create or replace function lock_messages(wanted bigint[], now timestamptz) returns bigint[] language plpgsql as $$
declare
    mine bigint[];
begin
    with locked as materialized (
        select o.seq from workflow_outbox as o
        where o.seq = any(wanted) and coalesce(o.status = 'pending' and not o.behind and o.next_at <= now, false)
        for update skip locked
    )
    select coalesce(array_agg(l.seq), '{}') into mine from locked as l;
    return mine;
end $$;

-- The locked messages that fit into one answer, in order: the first, and as many more as the bytes allow.
create or replace function fitting_messages(wanted bigint[], mine bigint[], budget bigint) returns bigint[]
language plpgsql as $$
declare
    one bigint;
    fitting bigint[] := '{}';
begin
    foreach one in array wanted loop
        continue when one <> all(mine);
        budget := budget - (select octet_length(o.payload::text) from workflow_outbox as o where o.seq = one);
        exit when budget < 0 and fitting <> '{}';
        fitting := fitting || one;
    end loop;
    return fitting;
end $$;

-- Parcels in the order of `wanted`. A webhook that was removed has none.
create or replace function take_messages(ask json, wanted bigint[], mine bigint[], now timestamptz) returns json
language plpgsql as $$
#variable_conflict use_column
declare
    sinks text[] := names_of(ask -> 'sinks');
    parcels json;
begin
    with taken as (
        update workflow_outbox as o
        set fence = o.fence + 1, attempts = o.attempts + 1, held_by = ask ->> 'relay',
            next_at = now + span((ask ->> 'lease_seconds')::double precision), tried_at = coalesce(o.tried_at, now)
        where o.seq = any(mine)
            and (o.sink = any(sinks) or exists (select 1 from workflow_webhook as w where w.name = o.sink))
        returning o.*
    )
    select json_agg(json_build_object(
        'id', o.id, 'fence', o.fence, 'tenant', o.tenant, 'run', o.run_id, 'sink', o.sink, 'key', o.key,
        'payload', o.payload::text, 'attempt', o.attempts, 'created_at', us(o.created_at),
        'trace', coalesce((select r.trace from workflow_run as r where r.id = o.run_id), ''),
        'webhook', (select webhook_record(w) from workflow_webhook as w where w.name = o.sink and o.sink <> all(sinks))
    ) order by array_position(wanted, o.seq)) into parcels
    from taken as o;
    return coalesce(parcels, '[]');
end $$;

-- Messages that another relay is taking at this moment are skipped, and later ones are looked for.
create or replace function relay(ask json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off
set jit = off as $$
#variable_conflict use_column
declare
    now timestamptz := clock();
    passed bigint[] := '{}';
    wanted bigint[];
    mine bigint[];
begin
    for round in 1..5 loop
        wanted := due_messages(ask, now, passed);
        if cardinality(wanted) = 0 then
            return '[]';
        end if;
        mine := lock_messages(wanted, now);
        exit when cardinality(mine) = cardinality(wanted);
        passed := passed || array(select unnest(wanted) except select unnest(mine));
    end loop;
    return take_messages(ask, wanted, fitting_messages(wanted, mine, coalesce((ask ->> 'bytes')::bigint, 8388608)), now);
end $$;

-- Write one counted answer. Returns true when something may be due sooner because of it.
create or replace function answered(o workflow_outbox, said json, now timestamptz) returns boolean
language plpgsql as $$
declare
    answer text := said ->> 'answer';
    -- A message is retried for three days after its first try.
    is_over boolean := answer = 'failed' and o.tried_at + span(3 * 86400) <= now;
    following bigint;
begin
    if answer in ('sent', 'dead') or is_over then
        update workflow_outbox as m
        set status = case answer when 'sent' then 'sent' else 'dead' end, held_by = null,
            last_error = (said ->> 'error')::json, sent_at = case answer when 'sent' then now end
        where m.seq = o.seq;
        -- From its own place on: index entries of messages that left before it may remain as long as an old transaction
        -- is open.
        following := case when o.key is not null then next_of_line(o.tenant, o.sink, o.key, o.seq) end;
        update workflow_outbox as m set behind = false, next_at = now where m.seq = following;
        return following is not null;
    end if;
    update workflow_outbox as m
    set next_at = now + span((said ->> 'delay_seconds')::double precision), held_by = null,
        last_error = (said ->> 'error')::json,
        attempts = m.attempts - case answer when 'released' then 1 else 0 end,
        tried_at = case when answer = 'released' and m.attempts <= 1 then null else m.tried_at end
    where m.seq = o.seq;
    return true;
end $$;

-- An answer that does not match now never will. Only answers that match lock the queues that they may change.
create or replace function relayed(answers json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off
set jit = off as $$
#variable_conflict use_column
declare
    now timestamptz := clock();
    said json;
    o workflow_outbox;
    lines text[] := '{}';
    counted boolean[] := '{}';
    news boolean := false;
begin
    for said in select a from json_array_elements(answers) as a loop
        if coalesce(said ->> 'answer', '') not in ('sent', 'failed', 'dead', 'released') then
            perform refuse('UsageError', '''' || coalesce(said ->> 'answer', '')
                || ''' is no answer of a relay: sent, failed, dead, released');
        end if;
        lines := lines || array(
            select line_of(held.tenant, held.sink, held.key) from workflow_outbox as held
            where held.id = said ->> 'id' and held.fence = (said ->> 'fence')::bigint and held.held_by is not null
                and said ->> 'answer' <> 'released'
        );
    end loop;
    perform lock_lines(lines);
    for said in select a from json_array_elements(answers) as a loop
        select * into o from workflow_outbox as held
        where held.id = said ->> 'id' and held.fence = (said ->> 'fence')::bigint and held.held_by is not null
        for update;
        counted := counted || found;
        if found then
            news := answered(o, said, now) or news;
        end if;
    end loop;
    if news then
        perform hint();
    end if;
    return to_json(counted);
end $$;

create or replace function relay_at(sinks json, tenants json, webhooks boolean) returns bigint language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off
set jit = off as $$
#variable_conflict use_column
declare
    whose text[] := names_of(tenants);
begin
    return (
        with served as materialized (select * from served_sinks(sinks, webhooks))
        select us(min(at)) from (
            select (
                select o.next_at from workflow_outbox as o
                where o.sink = s.name and o.status = 'pending' and not o.behind order by o.next_at limit 1
            ) as at
            from served as s where whose is null or not s.own
            union all
            select (
                select o.next_at from workflow_outbox as o
                where o.sink = s.name and o.tenant >= t.tenant and o.tenant <= t.tenant
                    and o.status = 'pending' and not o.behind
                order by o.tenant, o.next_at limit 1
            )
            from served as s cross join unnest(whose) as t(tenant) where s.own
        ) as looks
    );
end $$;
