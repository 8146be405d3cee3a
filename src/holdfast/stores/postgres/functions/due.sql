-- When a claim, and when a chore, may next find something. Every idle worker asks this again and again, with each hint, and
-- every second where none come: it walks from priority to priority by the index and takes the first of each, however much
-- sleeps, waits for later or is held back.

create or replace function due(ask json) returns json language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    types text[] := distinct_texts(ask -> 'types');
    tenants text[] := distinct_texts(ask -> 'tenants');
    claim_at timestamptz;
begin
    if exists (select 1 from workflow_limit) or exists (select 1 from workflow_registry) then
        claim_at := opens_at(open_types(types, ask ->> 'runtime'), tenants, now);
    else
        claim_at := next_run_at(types, tenants);
    end if;
    return json_build_object(
        'now', us(now), 'claim_at', us(claim_at), 'fire_at', next_schedule(coalesce(ask -> 'besides', '[]')),
        'deliver_at', case when something_is_owed() then 0 end, 'expire_at', us(next_lease_end()),
        'time_out_at', us(next_timeout()), 'lapse_at', us(next_wait_due((ask ->> 'wait_timeouts')::boolean))
    );
end $$;

-- When the first pending run of these types is due.
create or replace function next_run_at(types text[], tenants text[]) returns timestamptz language plpgsql stable as $$
declare
    marks jsonb := marks(tenants);
begin
    if marks is not null then
        return (select min(l.run_at) from lanes_past(types, marks) as l);
    elsif tenants is null then
        return (
            with recursive head (type, priority, run_at) as (
                select t.type, -2147483648, null::timestamptz from unnest(types) as t (type)
                union all
                select h.type, n.priority, n.run_at
                from head as h cross join lateral (
                    select r.type, r.priority, r.run_at from workflow_run as r
                    where (r.type, r.priority) > (h.type, h.priority) and r.type <= h.type
                        and r.status = 'pending' and r.deleted_at is null
                    order by r.type, r.priority, r.run_at, r.id limit 1
                ) as n
                where n.type = h.type
            )
            select min(h.run_at) from head as h
        );
    end if;
    return (
        with recursive head (tenant, type, priority, run_at) as (
            select o.tenant, t.type, -2147483648, null::timestamptz
            from unnest(types) as t (type) cross join unnest(tenants) as o (tenant)
            union all
            select h.tenant, h.type, n.priority, n.run_at
            from head as h cross join lateral (
                select r.tenant, r.type, r.priority, r.run_at from workflow_run as r
                where (r.tenant, r.type, r.priority) > (h.tenant, h.type, h.priority)
                    and r.tenant <= h.tenant
                    and r.status = 'pending' and r.deleted_at is null
                order by r.tenant, r.type, r.priority, r.run_at, r.id limit 1
            ) as n
            where n.tenant = h.tenant and n.type = h.type
        )
        select min(h.run_at) from head as h
    );
end $$;

-- From when on one of each of some names may be taken; infinity: not before a run of it ends.
create or replace function openings(scope text, names text[], now timestamptz)
returns table (name text, at timestamptz) language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select m.name, case when m.leased >= m.cap then 'infinity' else greatest(m.paused_until, case
        when m.used >= m.rate then free_at(openings.scope, m.name, m.rate, m.period, m.last, now)
    end) end
    from rooms(openings.scope, names, now) as m;
end $$;

-- The first instant at which one of some runs, due or not, may be taken; null: none before another one ends.
create or replace function first_opening(
    types text[], tenants text[], keys text[], times timestamptz[], now timestamptz
) returns timestamptz language plpgsql stable as $$
begin
    return nullif((
        select min(greatest(w.run_at, t.at, o.at, k.at))
        from unnest(types, tenants, keys, times) as w (type, tenant, key, run_at)
        left join openings('type', array(select distinct unnest(types)), now) as t on t.name = w.type
        left join openings('tenant', array(select distinct unnest(tenants)), now) as o on o.name = w.tenant
        left join openings('key', array_remove(array(select distinct unnest(keys)), null), now) as k on k.name = w.key
    ), 'infinity');
end $$;

-- When something may next be claimed where limits are set: by the first few runs of each priority if they tell, else by
-- the heads of lanes, as many as it takes, those that are due first.
create or replace function opens_at(types text[], tenants text[], now timestamptz) returns timestamptz
language plpgsql stable as $$
declare
    open_types text[] := names_to_open('type', types, now);
    open_tenants text[] := names_to_open('tenant', tenants, now);
    size integer;
    answer record;
    looked integer := 200;
    heads record;
    at timestamptz;
begin
    foreach size in array glances() loop
        answer := glance(open_types, open_tenants, size, now);
        if answer.sure then
            return answer.at;
        end if;
    end loop;
    loop
        select array_agg(h.type) as types, array_agg(h.tenant) as tenants, array_agg(h.limit_key) as keys,
            array_agg(h.run_at) as times
        into heads
        from (
            select * from lane_heads(open_types, open_tenants, null) as l order by l.run_at limit looked + 1
        ) as h;
        at := first_opening(heads.types, heads.tenants, heads.keys, heads.times, now);
        if coalesce(cardinality(heads.times), 0) <= looked or at <= heads.times[looked + 1] then
            return at;
        end if;
        looked := 8 * looked;
    end loop;
end $$;

-- How many runs of each priority are looked at.
create or replace function glances() returns integer[] language sql immutable as 'select array[4, 64]';

-- Those that are not held back as a whole until a run of theirs ends.
create or replace function names_to_open(scope text, names text[], now timestamptz) returns text[]
language plpgsql stable as $$
#variable_conflict use_column
begin
    if names is null or not exists (select 1 from workflow_limit as l where l.scope = names_to_open.scope) then
        return names;
    end if;
    return array(
        select n.name from unnest(names) as n (name)
        left join rooms(names_to_open.scope, names, now) as m on m.name = n.name
        where coalesce(m.leased < m.cap, true)
    );
end $$;

-- What the first few runs of each priority tell; not sure: a later one might be let go before.
create or replace function glance(
    types text[], tenants text[], size integer, now timestamptz, out at timestamptz, out sure boolean
) language plpgsql stable as $$
declare
    priority integer := next_priority(types, tenants, -2147483648);
    few record;
    last timestamptz;
begin
    while priority is not null loop
        select array_agg(w ->> 'type') as types, array_agg(w ->> 'tenant') as tenants, array_agg(w ->> 'key') as keys,
            array_agg(moment((w ->> 'run_at')::bigint)) as times
        into few
        from rows_at(
            types, tenants, priority, '-infinity', '00000000-0000-0000-0000-000000000000', size, 'infinity'
        ) as w;
        at := least(at, first_opening(few.types, few.tenants, few.keys, few.times, now));
        -- Of the next priority too only what comes before that.
        if cardinality(few.times) = size then
            last := least(last, few.times[size]);
        end if;
        priority := next_priority(types, tenants, priority);
    end loop;
    sure := last is null or coalesce(last >= at, false);
end $$;

-- Whether a keeper has something to deliver: at once, whatever the clock said when it was recorded.
create or replace function something_is_owed() returns boolean language plpgsql stable as $$
begin
    return exists (select 1 from workflow_inbox as e where not e.delivered)
        or exists (select 1 from workflow_run as r where r.owes > 0);
end $$;

-- A lease ends after its instant, all else is due at it.
create or replace function next_lease_end() returns timestamptz language plpgsql stable as $$
begin
    return (select min(r.lease_until) from workflow_run as r where r.status = 'leased') + interval '1 microsecond';
end $$;

create or replace function next_timeout() returns timestamptz language plpgsql stable as $$
begin
    return (
        select r.timeout_at from workflow_run as r
        where r.timeout_at is not null and r.finished_at is null order by r.timeout_at limit 1
    );
end $$;

create or replace function next_wait_due(wait_timeouts boolean) returns timestamptz language plpgsql stable as $$
begin
    if wait_timeouts then
        return (
            select s.due_at from workflow_step as s
            where s.status = 'waiting' and s.due_at is not null and s.kind <> 'child' order by s.due_at limit 1
        );
    end if;
    return (
        select s.due_at from workflow_step as s
        where s.status = 'waiting' and s.due_at is not null and s.kind <> 'child' and s.kind <> 'task'
            and (s.kind <> 'event' or s.timeout_seconds is null)
        order by s.due_at limit 1
    );
end $$;
