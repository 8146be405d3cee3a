-- claim where limits or registry entries are set: choose runs in the order of the queue, or by fair shares. Runs are
-- first read in order. After too many of them were held back, they are read lane by lane.

-- The number of held-back runs that a claim reads before it changes to lanes.
create or replace function held_back_max() returns integer language sql immutable as 'select 1000';

-- The number of runs of a name that this claim has taken so far.
create or replace function took_of(took jsonb, scope text, name text) returns bigint language sql immutable as $$
    select coalesce((took ->> (scope || ' ' || name))::bigint, 0)
$$;

-- The number of further runs with these names that may be taken, after those that this claim took; null: unlimited.
create or replace function quota_left(took jsonb, c jsonb) returns bigint language sql immutable as $$
    select least(
        (c ->> 'type_quota')::bigint - took_of(took, 'type', c ->> 'type'),
        (c ->> 'tenant_quota')::bigint - took_of(took, 'tenant', c ->> 'tenant'),
        (c ->> 'key_quota')::bigint - took_of(took, 'key', c ->> 'key')
    )
$$;

-- The counts of this claim after one more run was taken.
create or replace function took_one_more(took jsonb, c jsonb) returns jsonb language sql immutable as $$
    select took || jsonb_build_object(
        'type ' || (c ->> 'type'), took_of(took, 'type', c ->> 'type') + 1,
        'tenant ' || (c ->> 'tenant'), took_of(took, 'tenant', c ->> 'tenant') + 1,
        'key ' || coalesce(c ->> 'key', ''), took_of(took, 'key', coalesce(c ->> 'key', '')) + 1
    )
$$;

-- The highest number of crashes that a run may have to be taken. `held[k]` is how many taken runs crashed k times or
-- more, `crashed[k]` how many of those are allowed.
create or replace function crashes_left(crashed integer[], held integer[]) returns integer language plpgsql immutable as $$
begin
    return (
        select coalesce(min(c.level)::integer - 1, 2147483647)
        from unnest(crashed) with ordinality as c (allowed, level)
        where coalesce(held[c.level], 0) >= c.allowed
    );
end $$;

create or replace function crashed_one_more(crashed integer[], held integer[], crashes integer) returns integer[]
language plpgsql immutable as $$
begin
    return array(
        select coalesce(held[level], 0) + case when level <= crashes then 1 else 0 end
        from generate_series(1, cardinality(crashed)) as level order by level
    );
end $$;

-- Lock a run if it is still pending and due, and no other session has locked it.
create or replace function lock_pending(run uuid, now timestamptz) returns boolean language plpgsql as $$
begin
    perform 1 from workflow_run as r
    where r.id = run and r.status || '' = 'pending' and r.deleted_at is null and r.run_at <= now
    for no key update skip locked;
    return found;
end $$;

-- The next rows, of types and tenants that are not full as a whole.
create or replace function more_rows(
    types text[], tenants text[], after jsonb, by_lane boolean, took jsonb, seen uuid[], most integer, size integer,
    now timestamptz
) returns jsonb language plpgsql stable as $$
declare
    open_types text[] := names_with_quota('type', types, took, now);
    open_tenants text[] := names_with_quota('tenant', tenants, took, now);
begin
    if by_lane then
        return lane_rows(open_types, open_tenants, took, seen, most, size, now);
    end if;
    return with_quotas(rows_in_order(open_types, open_tenants, after, size, now), now);
end $$;

create or replace function names_with_quota(scope text, names text[], took jsonb, now timestamptz) returns text[]
language plpgsql stable as $$
#variable_conflict use_column
begin
    if names is null or not exists (select 1 from workflow_limit as l where l.scope = names_with_quota.scope) then
        return names;
    end if;
    return array(
        select n.name from unnest(names) as n (name)
        left join quotas(names_with_quota.scope, names, now) as m on m.name = n.name
        where m.quota is null or m.quota > took_of(took, names_with_quota.scope, n.name)
    );
end $$;

-- The runs of a limited claim, in order, locked; null: none. The places of tenants are stored here. The caller holds
-- the lock of limits, and stores the uses that rates count.
create or replace function choose_limited(ask json, now timestamptz) returns uuid[] language plpgsql
-- With many rows and many names, a nested loop would take quadratic time.
set enable_hashjoin = on as $$
declare
    types text[];
    tenants text[] := distinct_texts(ask -> 'tenants');
    turns record;
    served record;
begin
    if not unlimited_claims_ended() then
        return null;
    end if;
    types := open_types(texts(ask -> 'types'), ask ->> 'runtime');
    if (ask ->> 'limit')::integer <= 0 or cardinality(types) = 0 then
        return null;
    end if;
    if exists (select 1 from workflow_limit where weight is not null) then
        turns := turns_of(book_name(ask), types, tenants, now);
        served := serve(
            ask, types, tenants, true, turns.names[:turns.open], turns.places[:turns.open], turns.passed, now
        );
        if cardinality(served.chosen) > 0 then
            perform note_turns(
                book_name(ask), turns.book, turns.newcomers, turns.names, served.places || turns.places[turns.open + 1:],
                served.begun, served.passed, now
            );
        end if;
    else
        served := serve(ask, types, tenants, false, array[''], array[0], 0, now);
    end if;
    if cardinality(served.chosen) = 0 then
        return null;
    end if;
    return served.chosen;
end $$;

-- Take runs from queues, each time from the queue with the lowest place. There is one queue for each tenant where
-- tenants have weights, otherwise one for all. `names` and `places` describe the queues in order of service. A queue is
-- read only when its turn comes; `begun` counts those queues.
create or replace function serve(
    ask json, types text[], tenants text[], weighs boolean, names text[], inout places bigint[],
    inout passed bigint, now timestamptz, out chosen uuid[], out begun integer
) language plpgsql as $$
declare
    wanted integer := (ask ->> 'limit')::integer;
    crashed integer[] := numbers(ask -> 'crashed');
    held integer[] := '{}';
    most integer := crashes_left(crashed, held);
    held_back_left integer := held_back_max();
    took jsonb := '{}';
    seen uuid[] := '{}';
    strides bigint[] := '{}';
    -- For each queue: the rows that were read last, the position in them, and the size of that read (null when the
    -- queue has ended).
    rows jsonb[] := '{}';
    place integer[] := '{}';
    sizes integer[] := '{}';
    by_lane boolean[] := '{}';
    q integer;
    c jsonb;
begin
    chosen := '{}';
    begun := 0;
    while cardinality(chosen) < wanted loop
        q := case when weighs then lowest(names, places, sizes, begun) when sizes[1] is not null then 1 end;
        if begun < cardinality(names) and (q is null or
            (places[begun + 1], names[begun + 1] collate "C") < (places[q], names[q] collate "C"))
        then
            begun := begun + 1;
            q := begun;
            strides[q] := case when weighs then (select s.stride from strides_of(names[q:q]) as s) else 0 end;
            sizes[q] := case when weighs then 4 else wanted + 8 end;
            by_lane[q] := false;
        end if;
        exit when q is null;
        c := rows[q] -> place[q];
        if c is null then
            if rows[q] is not null then
                sizes[q] := case when jsonb_array_length(rows[q]) >= sizes[q] or by_lane[q]
                    then greatest(sizes[q], least(4 * sizes[q], 1000)) end;
            end if;
            if sizes[q] is not null then
                if held_back_left < 0 and not by_lane[q] then
                    by_lane[q] := true;
                    sizes[q] := wanted + 8;
                end if;
                rows[q] := more_rows(
                    types, case when weighs then names[q:q] else tenants end, rows[q] -> -1, by_lane[q], took, seen,
                    most, sizes[q], now
                );
                place[q] := 0;
                if rows[q] = '[]' then
                    sizes[q] := null;
                end if;
            end if;
            continue;
        end if;
        place[q] := place[q] + 1;
        if quota_left(took, c) <= 0 then
            held_back_left := held_back_left - 1;
            continue;
        end if;
        seen := seen || (c ->> 'id')::uuid;
        if (c ->> 'crashes')::integer <= most and lock_pending((c ->> 'id')::uuid, now) then
            chosen := chosen || (c ->> 'id')::uuid;
            took := took_one_more(took, c);
            held := crashed_one_more(crashed, held, (c ->> 'crashes')::integer);
            most := crashes_left(crashed, held);
            passed := greatest(passed, places[q]);
            places[q] := passed + strides[q];
        end if;
    end loop;
end $$;

-- The queue whose turn it is, among those that were begun and have not ended.
create or replace function lowest(names text[], places bigint[], sizes integer[], begun integer) returns integer
language plpgsql immutable as $$
begin
    return (
        select q from generate_series(1, begun) as q where sizes[q] is not null
        order by places[q], names[q] collate "C" limit 1
    );
end $$;

create or replace function distinct_texts(list json) returns text[] language plpgsql immutable as $$
begin
    return case when json_typeof(list) = 'array' then array(
        select distinct value from json_array_elements_text(list) as value
    ) end;
end $$;

create or replace function numbers(list json) returns integer[] language plpgsql immutable as $$
begin
    return array(
        select value::integer from json_array_elements_text(
            case when json_typeof(list) = 'array' then list else '[]' end
        ) as value
    );
end $$;

-- The clock now, not at the start of the statement: the claim may have waited for others in between. A clock that a
-- test has set stands still, unless the wait was long.
create or replace function current_instant() returns timestamptz language plpgsql volatile as $$
begin
    if clock() = statement_timestamp() or clock_timestamp() > statement_timestamp() + interval '1 second' then
        return clock() + (clock_timestamp() - statement_timestamp());
    end if;
    return clock();
end $$;

-- Store the claims that rates count. None is stored earlier than the last one, even if the clock was turned back.
create or replace function note_uses(chosen uuid[], now timestamptz) returns void language plpgsql as $$
declare
    u record;
    last record;
    counted integer := 0;
begin
    for u in
        select n.scope, n.name, n.taken, p.period * interval '1 microsecond' as period
        from (
            select s.scope, s.name, count(*) as taken from workflow_run as r
            cross join lateral (values ('type', r.type), ('tenant', r.tenant), ('key', r.limit_key)) as s (scope, name)
            where r.id = any(chosen) and s.name is not null group by s.scope, s.name
        ) as n
        cross join lateral (
            select l.period from rules_of(n.scope, array[n.name]) as l
            where l.rate is not null order by l.place limit 1
        ) as p
    loop
        -- An entry that is more than a period ahead comes from a wrong clock.
        delete from workflow_limit_use as k where k.scope = u.scope and k.name = u.name and k.at > now + u.period;
        select k.at, k.number into last from workflow_limit_use as k
        where k.scope = u.scope and k.name = u.name order by k.at desc limit 1;
        insert into workflow_limit_use as k (scope, name, at, number, taken, gone_at)
        values (
            u.scope, u.name, greatest(now, last.at), coalesce(last.number, 0) + u.taken, u.taken,
            greatest(now, last.at) + u.period
        )
        on conflict (scope, name, at) do update
        set number = excluded.number, taken = k.taken + excluded.taken;
        counted := counted + 1;
    end loop;
    if counted > 0 then
        perform forget_uses(greatest(100, 2 * counted), now);
    end if;
end $$;

-- Delete some uses that no rate counts any more: more than are added, so that the table does not grow.
create or replace function forget_uses(size integer, now timestamptz) returns bigint language plpgsql as $$
declare
    count bigint;
begin
    with gone as materialized (
        select k.scope, k.name, k.at from workflow_limit_use as k where k.gone_at <= now
        order by k.gone_at limit size for update skip locked
    ), forgotten as (
        delete from workflow_limit_use as u using gone as g
        where u.scope = g.scope and u.name = g.name and u.at = g.at returning 1
    )
    select count(*) into count from forgotten;
    return count;
end $$;
