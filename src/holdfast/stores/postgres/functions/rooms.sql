-- Which limits concern a name, and how much room they leave: for a claim, for whoever asks when, and for whoever asks
-- why. Always many names at once: a claim that passes over very many looks at them in one statement.

-- Claims under limits are made one after the other, and none beside a change of what is set. A statement of its own,
-- before any look: what a lock has waited for is seen only by the next one.
create or replace function lock_limits() returns void language sql as
    'select pg_advisory_xact_lock(1752132455, 0)';

-- Whether a claim has to heed anything. Where nothing is set claims go side by side; each says that it is one of those,
-- until it has ended, before it looks: what it takes counts in a limit that is set meanwhile. One that is none of them
-- takes it back: locks end with the block that is undone. The lock is asked for in an expression, which is not planned.
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

-- Whether all claims that know of no limit are through. Nobody queues for this lock, or claims would queue behind him; so
-- it is tried for a moment, in which others only look. One who keeps his transaction open for long is not waited for: what
-- he has taken counts from his commit on.
create or replace function unlimited_are_through() returns boolean language plpgsql as $$
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

-- The limits that speak for each of some names of a scope; the most specific has the lowest place.
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

-- How many runs of each of some names are leased. Of types and tenants there is no index: claims without limits would
-- have to keep it up to date.
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

-- What is set for each of some names, what is used of it, and how many more may be taken: `room`, null without end.
-- Of the claims that a rate counts `last` is the number of the last one. Names that nothing is set for are left out.
create or replace function rooms(scope text, names text[], now timestamptz)
returns table (
    name text, room bigint, cap integer, cap_rule text, leased bigint, rate integer, rate_rule text, period interval,
    used bigint, last bigint, paused_until timestamptz
) language plpgsql stable as $$
#variable_conflict use_column
begin
    if cardinality(names) = 0 or not exists (select 1 from workflow_limit as l where l.scope = rooms.scope) then
        return;
    end if;
    return query
    with said as materialized (
        select s.* from rules_of(rooms.scope, names) as s
    ), named as materialized (
        select s.name, min(s.place) filter (where s.concurrency is not null) as cap_place,
            min(s.place) filter (where s.rate is not null) as rate_place,
            max(s.paused_until) filter (where s.paused_until > now) as paused_until
        from said as s group by s.name
    ), held as materialized (
        select h.name, h.leased
        from leased_of(rooms.scope, array(select n.name from named as n where n.cap_place is not null)) as h
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
        -- One that lies further ahead than a period is of a clock that went wrong.
        select u.number as last, u.number - (
            select o.number - o.taken from workflow_limit_use as o
            where o.scope = rooms.scope and o.name = m.name and o.at > now - m.period
            order by o.at limit 1
        ) as used
        from workflow_limit_use as u
        where m.rate is not null and u.scope = rooms.scope and u.name = m.name
            and u.at > now - m.period and u.at <= now + m.period
        order by u.at desc limit 1
    ) as u on true;
end $$;

-- From when on one more is within a rate that is used up.
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

-- What a claim costs a tenant: the less, the more weight it has. Whole numbers, as in every store.
create or replace function strides_of(tenants text[]) returns table (tenant text, stride bigint)
language sql stable as $$
    select t.tenant, greatest(1, round(1000000 / coalesce(w.weight, 1.0))::bigint)
    from (select distinct unnest(tenants) as tenant) as t
    left join (
        select distinct on (s.name) s.name, s.weight from rules_of('tenant', tenants) as s
        where s.weight is not null order by s.name, s.place
    ) as w on w.name = t.tenant
$$;
