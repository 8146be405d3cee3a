-- Walks over the pending runs, where limits are set. First in plain order: from priority to priority, and in each as far
-- as it is due. Then by lanes: the runs of a type apart by tenant, limit_key and priority, in that order in one index, so
-- that those of a full name are passed over as a whole. From the head of one lane to the next is a look or three,
-- however many runs there are.
-- A row is an object: priority, run_at, id, crashes, type, tenant, key; and how much room its names have: type_room,
-- tenant_room, key_room, null without end. Tenants null: all.

create or replace function next_priority(types text[], tenants text[], beyond integer) returns integer
language plpgsql stable as $$
begin
    if tenants is null then
        return (
            select min(p.priority) from unnest(types) as t (type) cross join lateral (
                select r.priority from workflow_run as r
                where r.type = t.type and r.priority > beyond and r.status = 'pending' and r.deleted_at is null
                order by r.priority limit 1
            ) as p
        );
    end if;
    return (
        select min(p.priority) from unnest(types) as t (type) cross join unnest(tenants) as o (tenant)
        cross join lateral (
            select r.priority from workflow_run as r
            where r.tenant = o.tenant and r.type = t.type and r.priority > beyond
                and r.status = 'pending' and r.deleted_at is null
            order by r.priority limit 1
        ) as p
    );
end $$;

-- So many runs of one priority up to an instant, behind one of them.
create or replace function rows_at(
    types text[], tenants text[], priority integer, since timestamptz, since_id uuid, size integer, until timestamptz
) returns setof jsonb language plpgsql stable as $$
begin
    if tenants is null then
        return query
        select jsonb_build_object(
            'priority', w.priority, 'run_at', us(w.run_at), 'id', w.id, 'crashes', w.crashes, 'type', w.type,
            'tenant', w.tenant, 'key', w.limit_key
        )
        from unnest(types) as t (type) cross join lateral (
            select r.priority, r.run_at, r.id, r.crashes, r.type, r.tenant, r.limit_key from workflow_run as r
            where r.type = t.type and r.priority = rows_at.priority and r.run_at <= until
                and (r.run_at, r.id) > (since, since_id) and r.status = 'pending' and r.deleted_at is null
            order by r.run_at, r.id limit size
        ) as w
        order by w.run_at, w.id limit size;
    else
        return query
        select jsonb_build_object(
            'priority', w.priority, 'run_at', us(w.run_at), 'id', w.id, 'crashes', w.crashes, 'type', w.type,
            'tenant', w.tenant, 'key', w.limit_key
        )
        from unnest(types) as t (type) cross join unnest(tenants) as o (tenant) cross join lateral (
            select r.priority, r.run_at, r.id, r.crashes, r.type, r.tenant, r.limit_key from workflow_run as r
            where r.tenant = o.tenant and r.type = t.type and r.priority = rows_at.priority and r.run_at <= until
                and (r.run_at, r.id) > (since, since_id) and r.status = 'pending' and r.deleted_at is null
            order by r.run_at, r.id limit size
        ) as w
        order by w.run_at, w.id limit size;
    end if;
end $$;

-- The next due runs in plain order, behind one of them; fewer than asked for: there are no more.
create or replace function plain_rows(types text[], tenants text[], after jsonb, size integer, now timestamptz)
returns jsonb language plpgsql stable as $$
declare
    rows jsonb := '[]';
    priority integer := (after ->> 'priority')::integer;
    since timestamptz := coalesce(moment((after ->> 'run_at')::bigint), '-infinity');
    since_id uuid := coalesce((after ->> 'id')::uuid, '00000000-0000-0000-0000-000000000000');
begin
    if after is null then
        priority := next_priority(types, tenants, -2147483648);
    end if;
    while priority is not null and jsonb_array_length(rows) < size loop
        rows := rows || coalesce((
            select jsonb_agg(w)
            from rows_at(types, tenants, priority, since, since_id, size - jsonb_array_length(rows), now) as w
        ), '[]');
        priority := case when jsonb_array_length(rows) < size then next_priority(types, tenants, priority) end;
        since := '-infinity';
    end loop;
    return rows;
end $$;

-- Each row learns how much room its names have.
create or replace function with_rooms(rows jsonb, now timestamptz) returns jsonb language plpgsql stable as $$
begin
    if rows = '[]' then
        return rows;
    end if;
    return (
        select jsonb_agg(w.row || jsonb_build_object(
            'type_room', t.room, 'tenant_room', o.room, 'key_room', k.room
        ) order by w.place)
        from jsonb_array_elements(rows) with ordinality as w (row, place)
        left join rooms('type', array(select distinct jsonb_array_elements(rows) ->> 'type'), now) as t
            on t.name = w.row ->> 'type'
        left join rooms('tenant', array(select distinct jsonb_array_elements(rows) ->> 'tenant'), now) as o
            on o.name = w.row ->> 'tenant'
        left join rooms('key', array_remove(array(select distinct jsonb_array_elements(rows) ->> 'key'), null), now) as k
            on k.name = w.row ->> 'key'
    );
end $$;

-- The head of every lane, due or not.
create or replace function lane_heads(types text[], tenants text[])
returns table (
    type text, tenant text, limit_key text, priority integer, run_at timestamptz, id uuid, crashes integer
) language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    with recursive head as (
        select r.type, r.tenant, r.limit_key, r.priority, r.run_at, r.id, r.crashes
        from unnest(types) as t (type) cross join unnest(coalesce(tenants, array[''])) as o (tenant)
        join workflow_run as r on r.id = case when tenants is null then (
            select f.id from workflow_run as f
            where f.type = t.type and f.status = 'pending' and f.deleted_at is null
            order by f.tenant, f.limit_key, f.priority, f.run_at, f.id limit 1
        ) else (
            select f.id from workflow_run as f
            where f.type = t.type and f.tenant = o.tenant and f.status = 'pending' and f.deleted_at is null
            order by f.limit_key, f.priority, f.run_at, f.id limit 1
        ) end
        union all
        select r.type, r.tenant, r.limit_key, r.priority, r.run_at, r.id, r.crashes
        from head as h join workflow_run as r on r.id = coalesce(
            lane_behind(h.type, h.tenant, h.limit_key, h.priority),
            case when tenants is null then (
                select f.id from workflow_run as f
                where f.type = h.type and f.tenant > h.tenant and f.status = 'pending' and f.deleted_at is null
                order by f.tenant, f.limit_key, f.priority, f.run_at, f.id limit 1
            ) end
        )
    )
    select * from head;
end $$;

-- The next head of the same tenant: under the same key, else under the next one, and at last without a key. It is
-- ordered by the key also where there is none: so it stands in the index.
create or replace function lane_behind(type text, tenant text, key text, priority integer) returns uuid
language sql stable as $$
    select case when lane_behind.key is not null then coalesce((
        select f.id from workflow_run as f
        where f.type = lane_behind.type and f.tenant = lane_behind.tenant and f.limit_key = lane_behind.key
            and f.priority > lane_behind.priority and f.status = 'pending' and f.deleted_at is null
        order by f.priority, f.run_at, f.id limit 1
    ), (
        select f.id from workflow_run as f
        where f.type = lane_behind.type and f.tenant = lane_behind.tenant and f.limit_key > lane_behind.key
            and f.status = 'pending' and f.deleted_at is null
        order by f.limit_key, f.priority, f.run_at, f.id limit 1
    ), (
        select f.id from workflow_run as f
        where f.type = lane_behind.type and f.tenant = lane_behind.tenant and f.limit_key is null
            and f.status = 'pending' and f.deleted_at is null
        order by f.limit_key, f.priority, f.run_at, f.id limit 1
    )) else (
        select f.id from workflow_run as f
        where f.type = lane_behind.type and f.tenant = lane_behind.tenant and f.limit_key is null
            and f.priority > lane_behind.priority and f.status = 'pending' and f.deleted_at is null
        order by f.limit_key, f.priority, f.run_at, f.id limit 1
    ) end
$$;

-- So many due runs of one lane from one of them on, but for those that were seen or have crashed too often.
create or replace function lane_runs(
    type text, tenant text, key text, priority integer, since timestamptz, since_id uuid, most integer, seen uuid[],
    size bigint, now timestamptz
) returns table (run_at timestamptz, id uuid, crashes integer) language plpgsql stable as $$
#variable_conflict use_column
begin
    if lane_runs.key is null then
        return query
        select r.run_at, r.id, r.crashes from workflow_run as r
        where r.type = lane_runs.type and r.tenant = lane_runs.tenant and r.limit_key is null
            and r.priority = lane_runs.priority and (r.run_at, r.id) >= (since, since_id) and r.run_at <= now
            and r.status = 'pending' and r.deleted_at is null and r.crashes <= most and r.id <> all(seen)
        order by r.limit_key, r.priority, r.run_at, r.id limit size;
    else
        return query
        select r.run_at, r.id, r.crashes from workflow_run as r
        where r.type = lane_runs.type and r.tenant = lane_runs.tenant and r.limit_key = lane_runs.key
            and r.priority = lane_runs.priority and (r.run_at, r.id) >= (since, since_id) and r.run_at <= now
            and r.status = 'pending' and r.deleted_at is null and r.crashes <= most and r.id <> all(seen)
        order by r.run_at, r.id limit size;
    end if;
end $$;

-- The next due runs by lanes: none that was seen, none of a lane that is full with what was taken so far. Empty: there
-- are no more.
create or replace function lane_rows(
    types text[], tenants text[], took jsonb, seen uuid[], most integer, size integer, now timestamptz
) returns jsonb language plpgsql stable
set enable_hashjoin = on as $$
begin
    return (
        with head as materialized (
            select * from lane_heads(types, tenants) as h where h.run_at <= now
        ), lane as (
            select h.*, t.room as type_room, o.room as tenant_room, k.room as key_room, least(
                t.room - took_of(took, 'type', h.type), o.room - took_of(took, 'tenant', h.tenant),
                k.room - took_of(took, 'key', h.limit_key)
            ) as room
            from head as h
            left join rooms('type', array(select distinct x.type from head as x), now) as t on t.name = h.type
            left join rooms('tenant', array(select distinct x.tenant from head as x), now) as o on o.name = h.tenant
            left join rooms('key', array(
                select distinct x.limit_key from head as x where x.limit_key is not null
            ), now) as k on k.name = h.limit_key
        ), begun as (
            -- The first so many lanes: what comes first in all of them is in these.
            select l.*, f.run_at as since, f.id as since_id
            from lane as l cross join lateral (
                select l.run_at, l.id where l.crashes <= most and l.id <> all(seen)
                union all
                select r.run_at, r.id from lane_runs(
                    l.type, l.tenant, l.limit_key, l.priority, l.run_at, l.id, most, seen,
                    case when l.crashes <= most and l.id <> all(seen) then 0 else 1 end, now
                ) as r
            ) as f
            where l.room is null or l.room > 0
            order by l.priority, f.run_at, f.id limit size
        )
        select coalesce(jsonb_agg(jsonb_build_object(
            'priority', w.priority, 'run_at', us(w.run_at), 'id', w.id, 'crashes', w.crashes, 'type', w.type,
            'tenant', w.tenant, 'key', w.limit_key,
            'type_room', w.type_room, 'tenant_room', w.tenant_room, 'key_room', w.key_room
        ) order by w.priority, w.run_at, w.id), '[]')
        from (
            select b.type, b.tenant, b.limit_key, b.priority, r.run_at, r.id, r.crashes,
                b.type_room, b.tenant_room, b.key_room
            from begun as b cross join lateral lane_runs(
                b.type, b.tenant, b.limit_key, b.priority, b.since, b.since_id, most, seen,
                least(size, b.room), now
            ) as r
            order by b.priority, r.run_at, r.id limit size
        ) as w
    );
end $$;
