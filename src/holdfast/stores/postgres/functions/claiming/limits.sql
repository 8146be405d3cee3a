-- The verbs that set and show limits. limited.sql applies them to a claim.

-- A limit as it is shown to people, without a pause that is over.
create or replace function limit_record(l workflow_limit, now timestamptz) returns json language sql stable as $$
    select json_build_object(
        'scope', l.scope, 'name', l.name, 'concurrency', l.concurrency, 'rate', l.rate,
        'period_seconds', l.period / 1000000::double precision, 'weight', l.weight,
        'paused_until', case when l.paused_until > now then shown_at(l.paused_until) end
    )
$$;

create or replace function limits() returns json language plpgsql stable set search_path from current as $$
declare
    now timestamptz := clock();
begin
    return (
        select coalesce(json_agg(limit_record(l, now) order by l.scope collate "C", l.name), '[]')
        from workflow_limit as l
        where l.concurrency is not null or l.rate is not null or l.weight is not null or l.paused_until > now
    );
end $$;

create or replace function limit_named(scope text, name text) returns workflow_limit language plpgsql stable as $$
declare
    l workflow_limit;
begin
    select * into l from workflow_limit as k where k.scope = limit_named.scope and k.name = limit_named.name;
    l.scope := limit_named.scope;
    l.name := limit_named.name;
    return l;
end $$;

-- Store a limit; delete one that limits nothing.
create or replace function put_limit(l workflow_limit, now timestamptz) returns void language plpgsql as $$
begin
    if l.concurrency is null and l.rate is null and l.weight is null and l.paused_until is null then
        delete from workflow_limit as k where k.scope = l.scope and k.name = l.name;
        return;
    end if;
    insert into workflow_limit as k (scope, name, concurrency, rate, period, weight, paused_until, updated_at)
    values (l.scope, l.name, l.concurrency, l.rate, l.period, l.weight, l.paused_until, now)
    on conflict (scope, name) do update
    set concurrency = excluded.concurrency, rate = excluded.rate, period = excluded.period,
        weight = excluded.weight, paused_until = excluded.paused_until, updated_at = excluded.updated_at;
end $$;

-- The rates and strides of those names that uses or places are stored for and that a change of this limit can concern.
-- Compared before and after the change, they say what must be deleted.
create or replace function rates_and_strides(scope text, name text) returns jsonb language plpgsql stable as $$
begin
    return jsonb_build_object('rates', (
        select jsonb_object_agg(u.name, (
            select r.rate || '/' || r.period from rules_of(rates_and_strides.scope, array[u.name]) as r
            where r.rate is not null order by r.place limit 1
        ))
        from (
            select distinct k.name from workflow_limit_use as k
            where k.scope = rates_and_strides.scope and case when right(rates_and_strides.name, 1) = '%'
                then starts_with(k.name, left(rates_and_strides.name, -1)) else k.name = rates_and_strides.name end
        ) as u
    ), 'strides', (
        select jsonb_object_agg(w.tenant, w.stride) from strides_of(array(
            select distinct p.tenant from workflow_limit_place as p where rates_and_strides.scope = 'tenant'
        )) as w
    ));
end $$;

-- Delete uses that were counted under another rate, and places that were computed with another weight.
create or replace function forget_changed(scope text, name text, before jsonb) returns void language plpgsql as $$
declare
    after jsonb := rates_and_strides(forget_changed.scope, forget_changed.name);
begin
    delete from workflow_limit_use as u
    where u.scope = forget_changed.scope and u.name in (
        select b.key from jsonb_each(nullif(before -> 'rates', 'null')) as b
        where b.value is distinct from after -> 'rates' -> b.key
    );
    if not exists (select 1 from workflow_limit where weight is not null) then
        delete from workflow_limit_place;
        delete from workflow_limit_book;
    elsif before -> 'strides' <> after -> 'strides' then
        delete from workflow_limit_place as p
        where before -> 'strides' -> p.tenant <> after -> 'strides' -> p.tenant;
    end if;
end $$;

-- Set concurrency, rate with period_seconds, and weight, all of them at once. A pause stays.
create or replace function "limit"(scope text, name text, given json) returns json language plpgsql
set search_path from current as $$
declare
    now timestamptz := clock();
    before jsonb;
    l workflow_limit;
begin
    perform lock_limits();
    before := rates_and_strides("limit".scope, "limit".name);
    l := limit_named("limit".scope, "limit".name);
    l.concurrency := (given ->> 'concurrency')::integer;
    l.rate := (given ->> 'rate')::integer;
    l.period := round((given ->> 'period_seconds')::double precision * 1000000)::bigint;
    l.weight := (given ->> 'weight')::double precision;
    perform put_limit(l, now);
    perform forget_changed("limit".scope, "limit".name, before);
    perform hint();
    return limit_record(l, now);
end $$;

create or replace function unlimit(scope text, name text) returns json language plpgsql
set search_path from current as $$
declare
    before jsonb;
    there boolean;
begin
    perform lock_limits();
    before := rates_and_strides(unlimit.scope, unlimit.name);
    delete from workflow_limit as l where l.scope = unlimit.scope and l.name = unlimit.name;
    there := found;
    if there then
        perform forget_changed(unlimit.scope, unlimit.name, before);
    end if;
    perform hint();
    return to_json(there);
end $$;

-- Pause a key until an instant, or for a time from now on. A pause that lasts longer already is not changed.
create or replace function pause_key(key text, until bigint, delay_seconds double precision) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    l workflow_limit;
begin
    perform lock_limits();
    for l in select * from workflow_limit as k where k.paused_until <= now loop
        l.paused_until := null;
        perform put_limit(l, now);
    end loop;
    l := limit_named('key', key);
    l.paused_until := greatest(l.paused_until, coalesce(
        checked_moment('until', until), now + span(coalesce(delay_seconds, 0))
    ));
    perform put_limit(l, now);
    return limit_record(l, now);
end $$;

create or replace function resume_key(key text) returns json language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    l workflow_limit;
    paused boolean;
begin
    perform lock_limits();
    l := limit_named('key', key);
    paused := coalesce(l.paused_until > now, false);
    if l.paused_until is not null then
        l.paused_until := null;
        perform put_limit(l, now);
    end if;
    perform hint();
    return to_json(paused);
end $$;

-- The reasons why a worker of that runtime cannot claim a run, apart from the run's time and a lack of workers.
create or replace function held_back(run uuid, tenant text, runtime text) returns json language plpgsql stable
set search_path from current as $$
#variable_conflict use_column
declare
    now timestamptz := clock();
begin
    return (
        select coalesce(json_agg(h.hold order by h.place), '[]')
        from workflow_run as r
        cross join lateral (
            select row_number() over () as place, w.hold
            from (
                select x.hold from entries_of(array[r.type]) as e
                cross join lateral (values
                    (1, not e.is_enabled, json_build_object('why', 'disabled', 'name', r.type, 'rule', e.entry)),
                    (2, e.runtime <> held_back.runtime, json_build_object(
                        'why', 'runtime', 'name', r.type, 'rule', e.entry, 'runtime', e.runtime))
                ) as x (place, holds, hold)
                where x.holds
                union all
                select x.hold
                from (values ('type', r.type), ('tenant', r.tenant), ('key', r.limit_key)) as s (scope, name)
                cross join lateral quotas(s.scope, array_remove(array[s.name], null), now) as m
                cross join lateral (values
                    (m.paused_until is not null, 'paused', (
                        select l.rule from rules_of(s.scope, array[m.name]) as l
                        where l.paused_until = m.paused_until order by l.place limit 1
                    ), null, null, m.paused_until),
                    (m.leased >= m.cap, 'concurrency', m.cap_rule, m.leased, m.cap, null),
                    (m.used >= m.rate, 'rate', m.rate_rule, m.used, m.rate, case when m.used >= m.rate
                        then free_at(s.scope, m.name, m.rate, m.period, m.last, now) end)
                ) as y (holds, why, rule, used, allowed, until)
                cross join lateral (select json_build_object(
                    'why', y.why, 'scope', s.scope, 'name', m.name, 'rule', y.rule, 'used', y.used,
                    'allowed', y.allowed, 'until', shown_at(y.until)
                ) as hold) as x
                where y.holds
            ) as w
        ) as h
        where r.id = held_back.run and (held_back.tenant is null or r.tenant = held_back.tenant)
            and r.status = 'pending' and r.deleted_at is null
    );
end $$;
