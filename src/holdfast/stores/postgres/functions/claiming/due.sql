-- due: when a claim, a relay, and when each chore, may next find something. Every idle worker calls this with each
-- wake-up, and every second where none come. So it reads only the first run of each priority from the index, however many runs
-- sleep, wait for later or are held back.

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
        claim_at := next_claim_at(open_types(types, ask ->> 'runtime'), tenants, now);
    else
        claim_at := next_run_at(types, tenants);
    end if;
    return json_build_object(
        'now', us(now), 'claim_at', us(claim_at), 'fire_at', next_schedule(coalesce(ask -> 'besides', '[]')),
        'deliver_at', case when something_is_owed() then 0 end, 'expire_at', us(next_lease_end()),
        'time_out_at', us(next_timeout()), 'lapse_at', us(next_wait_due((ask ->> 'wait_timeouts')::boolean)),
        'count_at', us(next_fold()),
        'relay_at', case when (ask ->> 'webhooks')::boolean or json_array_length(ask -> 'sinks') > 0 then
            relay_at(ask -> 'sinks', ask -> 'tenants', (ask ->> 'webhooks')::boolean)
        end
    );
end $$;

-- The time of the first pending run of these types.
create or replace function next_run_at(types text[], tenants text[]) returns timestamptz language plpgsql stable as $$
declare
    watermarks jsonb := watermarks(tenants);
begin
    if watermarks is not null then
        return (select min(l.run_at) from first_pending_from(types, watermarks) as l);
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

-- For each name of a scope that has limits: from when on one more run may be taken. Infinity: not before a run with
-- this name ends.
create or replace function quota_opens_at(scope text, names text[], now timestamptz)
returns table (name text, at timestamptz) language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select m.name, case when m.leased >= m.cap then 'infinity' else greatest(m.paused_until, case
        when m.used >= m.rate then free_at(quota_opens_at.scope, m.name, m.rate, m.period, m.last, now)
    end) end
    from quotas(quota_opens_at.scope, names, now) as m;
end $$;

-- The first instant at which one of these runs may be taken, whether it is due or not; null: none before another run
-- ends.
create or replace function first_claim_at(
    types text[], tenants text[], keys text[], times timestamptz[], now timestamptz
) returns timestamptz language plpgsql stable as $$
begin
    return nullif((
        select min(greatest(w.run_at, t.at, o.at, k.at))
        from unnest(types, tenants, keys, times) as w (type, tenant, key, run_at)
        left join quota_opens_at('type', array(select distinct unnest(types)), now) as t on t.name = w.type
        left join quota_opens_at('tenant', array(select distinct unnest(tenants)), now) as o on o.name = w.tenant
        left join quota_opens_at('key', array_remove(array(select distinct unnest(keys)), null), now) as k on k.name = w.key
    ), 'infinity');
end $$;

-- The next instant at which something may be claimed where limits are set. The first few runs of each priority answer
-- it in most cases. Otherwise the heads of lanes do, earliest first, as many as needed.
create or replace function next_claim_at(types text[], tenants text[], now timestamptz) returns timestamptz
language plpgsql stable as $$
declare
    open_types text[] := names_below_cap('type', types, now);
    open_tenants text[] := names_below_cap('tenant', tenants, now);
    size integer;
    answer record;
    looked integer := 200;
    heads record;
    at timestamptz;
begin
    foreach size in array glance_sizes() loop
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
        at := first_claim_at(heads.types, heads.tenants, heads.keys, heads.times, now);
        if coalesce(cardinality(heads.times), 0) <= looked or at <= heads.times[looked + 1] then
            return at;
        end if;
        looked := 8 * looked;
    end loop;
end $$;

-- The number of runs of each priority that `glance` reads: few at first, then more.
create or replace function glance_sizes() returns integer[] language sql immutable as 'select array[4, 64]';

-- The names that are below their concurrency limit. All runs of the other names are held back until one of them ends.
create or replace function names_below_cap(scope text, names text[], now timestamptz) returns text[]
language plpgsql stable as $$
#variable_conflict use_column
begin
    if names is null or not exists (select 1 from workflow_limit as l where l.scope = names_below_cap.scope) then
        return names;
    end if;
    return array(
        select n.name from unnest(names) as n (name)
        left join quotas(names_below_cap.scope, names, now) as m on m.name = n.name
        where coalesce(m.leased < m.cap, true)
    );
end $$;

-- The answer that the first few runs of each priority give. `sure` is false when a run that was not read might be free
-- earlier.
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
        at := least(at, first_claim_at(few.types, few.tenants, few.keys, few.times, now));
        -- The answer is sure only up to the last run that was read, of every priority.
        if cardinality(few.times) = size then
            last := least(last, few.times[size]);
        end if;
        priority := next_priority(types, tenants, priority);
    end loop;
    sure := last is null or coalesce(last >= at, false);
end $$;

-- True when a keeper has something to deliver. It is due at once, whatever the clock was when it was recorded.
create or replace function something_is_owed() returns boolean language plpgsql stable as $$
begin
    return exists (select 1 from workflow_inbox as e where not e.delivered)
        or exists (select 1 from workflow_run as r where r.owes > 0);
end $$;

-- A lease ends after its instant; everything else is due at its instant.
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
