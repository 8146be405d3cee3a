-- Quotas: which limits apply to a name, and how many more runs they allow. Used by claims, by `due` and by `held_back`.
-- All functions take many names at once, so that a claim that passes over many runs looks them up in one statement.

-- The lock of limits: claims under limits run one after the other, and none runs beside a change of limits. Take the
-- lock in a statement of its own, before any read: only the next statement sees what the lock has waited for.
create or replace function lock_limits() returns void language sql as
    'select pg_advisory_xact_lock(1752132455, 0)';

-- True when a claim has to respect limits or the registry. Where nothing is set, claims run in parallel. Each then
-- holds a shared lock until it ends, and takes it before it looks: so a limit that is set meanwhile can count what that
-- claim takes. A claim that finds limits gives the shared lock back: the exception undoes the block, and locks of an
-- undone block are released. The lock is taken in an expression, which needs no planning.
create or replace function is_limited() returns boolean language plpgsql as $$
declare
    limited boolean;
begin
    limited := pg_advisory_xact_lock_shared(1752132455, 1) is null;
    limited := exists (select 1 from workflow_limit) or exists (select 1 from workflow_registry);
    if limited then
        raise sqlstate 'HFLET';
    end if;
    return false;
exception when sqlstate 'HFLET' then
    return true;
end $$;

-- True when no claim that knows of no limit is still running. This lock must not be queued for, or other claims would
-- queue behind; so it is tried for a short time only. A transaction that stays open for more than 15 seconds is not
-- waited for: what it has taken counts from its commit on.
create or replace function unlimited_claims_ended() returns boolean language plpgsql as $$
begin
    for tries in 1 .. 20 loop
        if pg_try_advisory_xact_lock(1752132455, 1) then
            raise sqlstate 'HFLET';
        end if;
        perform pg_sleep(0.001);
    end loop;
    return not exists (
        select 1 from pg_locks as l left join pg_stat_activity as a on a.pid = l.pid
        where l.locktype = 'advisory' and l.classid = 1752132455 and l.objid = 1 and l.granted
            and l.database = (select d.oid from pg_database as d where d.datname = current_database())
            and (a.xact_start < clock_timestamp() - interval '15 seconds') is not true
    );
exception when sqlstate 'HFLET' then
    return true;
end $$;

-- The limits that apply to each of these names. The most specific limit has the lowest place.
create or replace function rules_of(scope text, names text[])
returns table (
    name text, place integer, rule text, concurrency integer, rate integer, period bigint, weight double precision,
    paused_until timestamptz
) language sql stable as $$
    select n.name, 0, l.name, l.concurrency, l.rate, l.period, l.weight, l.paused_until
    from (select distinct unnest(names) as name) as n
    join workflow_limit as l on l.scope = rules_of.scope and l.name = n.name
    union all
    select n.name, 2147483647 - length(l.name), l.name, l.concurrency, l.rate, l.period, l.weight, l.paused_until
    from (select distinct unnest(names) as name) as n
    join workflow_limit as l on starts_with(n.name, left(l.name, -1)) and l.name <> n.name
    where l.scope = rules_of.scope and right(l.name, 1) = '%'
$$;

-- The number of leased runs of each name. There is no index for types and tenants, because claims without limits would
-- have to maintain it.
create or replace function leased_of(scope text, names text[]) returns table (name text, leased bigint)
language plpgsql stable as $$
#variable_conflict use_column
begin
    if cardinality(names) = 0 then
        return;
    elsif leased_of.scope = 'key' then
        return query
        select r.limit_key, count(*) from workflow_run as r
        where r.status = 'leased' and r.limit_key is not null and r.limit_key = any(names) group by r.limit_key;
    elsif leased_of.scope = 'type' then
        return query
        select r.type, count(*) from workflow_run as r
        where r.status = 'leased' and r.type = any(names) group by r.type;
    else
        return query
        select r.tenant, count(*) from workflow_run as r
        where r.status = 'leased' and r.tenant = any(names) group by r.tenant;
    end if;
end $$;

-- For each name: its limits, what is used of them, and `quota`: how many more runs may be taken, null when unlimited.
-- `last` is the number of the last claim that the rate counts. Names without limits are left out.
create or replace function quotas(scope text, names text[], now timestamptz)
returns table (
    name text, quota bigint, cap integer, cap_rule text, leased bigint, rate integer, rate_rule text, period interval,
    used bigint, last bigint, paused_until timestamptz
) language plpgsql stable as $$
#variable_conflict use_column
begin
    if cardinality(names) = 0 or not exists (select 1 from workflow_limit as l where l.scope = quotas.scope) then
        return;
    end if;
    return query
    with said as materialized (
        select s.* from rules_of(quotas.scope, names) as s
    ), named as materialized (
        select s.name, min(s.place) filter (where s.concurrency is not null) as cap_place,
            min(s.place) filter (where s.rate is not null) as rate_place,
            max(s.paused_until) filter (where s.paused_until > now) as paused_until
        from said as s group by s.name
    ), held as materialized (
        select h.name, h.leased
        from leased_of(quotas.scope, array(select n.name from named as n where n.cap_place is not null)) as h
    ), m as (
        select n.name, c.concurrency as cap, c.rule as cap_rule, coalesce(h.leased, 0) as leased, r.rate,
            r.rule as rate_rule, r.period * interval '1 microsecond' as period, n.paused_until
        from named as n
        left join said as c on c.name = n.name and c.place = n.cap_place
        left join said as r on r.name = n.name and r.place = n.rate_place
        left join held as h on h.name = n.name
    )
    select m.name,
        least(m.cap - m.leased, m.rate - coalesce(u.used, 0), case when m.paused_until is not null then 0 end),
        m.cap, m.cap_rule, m.leased, m.rate, m.rate_rule, m.period, coalesce(u.used, 0), u.last, m.paused_until
    from m
    left join lateral (
        -- An entry that is more than a period ahead comes from a wrong clock.
        select u.number as last, u.number - (
            select o.number - o.taken from workflow_limit_use as o
            where o.scope = quotas.scope and o.name = m.name and o.at > now - m.period
            order by o.at limit 1
        ) as used
        from workflow_limit_use as u
        where m.rate is not null and u.scope = quotas.scope and u.name = m.name
            and u.at > now - m.period and u.at <= now + m.period
        order by u.at desc limit 1
    ) as u on true;
end $$;

-- The instant from which on one more run is within a rate that is used up.
create or replace function free_at(
    scope text, name text, rate integer, period interval, last bigint, now timestamptz
) returns timestamptz language plpgsql stable as $$
begin
    return (
        select coalesce((
            select u.at + free_at.period from workflow_limit_use as u
            where u.scope = free_at.scope and u.name = free_at.name and u.at > now - free_at.period
                and u.number > free_at.last - free_at.rate
            order by u.at limit 1
        ), now)
    );
end $$;

-- The stride of each tenant: how far a claim moves its place. A greater weight has a smaller stride. Strides are whole
-- numbers, as in every store.
create or replace function strides_of(tenants text[]) returns table (tenant text, stride bigint)
language sql stable as $$
    select t.tenant, greatest(1, round(1000000 / coalesce(w.weight, 1.0))::bigint)
    from (select distinct unnest(tenants) as tenant) as t
    left join (
        select distinct on (s.name) s.name, s.weight from rules_of('tenant', tenants) as s
        where s.weight is not null order by s.name, s.place
    ) as w on w.name = t.tenant
$$;
