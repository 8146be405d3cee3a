-- Two ways to read the pending runs where limits are set. In order: from priority to priority, and in each priority as
-- far as runs are due. By lanes: a lane is the runs of one type, tenant, limit_key and priority, which stand together
-- in one index, so that all runs of a full name are skipped as a whole. The step from the head of one lane to the next
-- costs one to three index lookups, however many runs there are.
-- A row is a JSON object: priority, run_at, id, crashes, type, tenant, key; and the quotas of its names: type_quota,
-- tenant_quota, key_quota, null when unlimited. `tenants` null means all tenants.

-- The next priority above one. Each lookup starts behind a row, compares whole rows and is ordered by all columns of
-- one index. So no other index can serve it, whatever the statistics say; with conditions on single columns the planner
-- takes the index of a type for a tenant that has no runs. The lookup has no upper bound, because a comparison of rows
-- would end at its first column; rows beyond are filtered out.
create or replace function next_priority(types text[], tenants text[], beyond integer) returns integer
language plpgsql stable as $$
begin
    if tenants is null then
        return (
            select min(p.priority) from unnest(types) as t (type) cross join lateral (
                select r.type, r.priority from workflow_run as r
                where (r.type, r.priority) > (t.type, beyond) and r.status = 'pending' and r.deleted_at is null
                order by r.type, r.priority, r.run_at, r.id limit 1
            ) as p
            where p.type = t.type
        );
    end if;
    return (
        select min(p.priority) from unnest(types) as t (type) cross join unnest(tenants) as o (tenant)
        cross join lateral (
            select r.tenant, r.type, r.priority from workflow_run as r
            where (r.tenant, r.type, r.priority) > (o.tenant, t.type, beyond)
                and r.status = 'pending' and r.deleted_at is null
            order by r.tenant, r.type, r.priority, r.run_at, r.id limit 1
        ) as p
        where p.tenant = o.tenant and p.type = t.type
    );
end $$;

-- At most `size` runs of one priority up to an instant, behind a given run.
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
            where (r.tenant, r.type, r.priority, r.run_at, r.id) > (o.tenant, t.type, rows_at.priority, since, since_id)
                and r.status = 'pending' and r.deleted_at is null
            order by r.tenant, r.type, r.priority, r.run_at, r.id limit size
        ) as w
        where w.tenant = o.tenant and w.type = t.type and w.priority = rows_at.priority and w.run_at <= until
        order by w.run_at, w.id limit size;
    end if;
end $$;

-- The next due runs in order, behind a given row. Fewer rows than asked for: there are no more.
create or replace function rows_in_order(types text[], tenants text[], after jsonb, size integer, now timestamptz)
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

-- The rows with the quotas of their names added.
create or replace function with_quotas(rows jsonb, now timestamptz) returns jsonb language plpgsql stable as $$
begin
    if rows = '[]' then
        return rows;
    end if;
    return (
        select jsonb_agg(w.row || jsonb_build_object(
            'type_quota', t.quota, 'tenant_quota', o.quota, 'key_quota', k.quota
        ) order by w.place)
        from jsonb_array_elements(rows) with ordinality as w (row, place)
        left join quotas('type', array(select distinct jsonb_array_elements(rows) ->> 'type'), now) as t
            on t.name = w.row ->> 'type'
        left join quotas('tenant', array(select distinct jsonb_array_elements(rows) ->> 'tenant'), now) as o
            on o.name = w.row ->> 'tenant'
        left join quotas('key', array_remove(array(select distinct jsonb_array_elements(rows) ->> 'key'), null), now) as k
            on k.name = w.row ->> 'key'
    );
end $$;

-- The head of every lane, due or not. With `until`, none of a tenant behind its first head that is due then. It reads a
-- chunk of index entries at once, because most lanes are short, and continues behind the lane of the last entry.
create or replace function lane_heads(types text[], tenants text[], until timestamptz)
returns table (type text, tenant text, limit_key text, priority integer, run_at timestamptz, id uuid)
language plpgsql stable as $$
#variable_conflict use_column
declare
    chunk constant integer := 128;
    few record;
    count integer;
    -- The part of the index that comes next: further keys of the same tenant, then its runs without a key, then the next
    -- tenant.
    place text;
begin
    for type, tenant in
        select t.type, o.tenant from unnest(types) as t (type), unnest(coalesce(tenants, array[''])) as o (tenant)
    loop
        limit_key := '';
        priority := -2147483648;
        place := case when tenants is null then 'tenant' else 'key' end;
        while place <> '' loop
            select array_agg(f.tenant) as tenants, array_agg(f.limit_key) as keys, array_agg(f.priority) as priorities,
                array_agg(f.run_at) as times, array_agg(f.id) as ids
            into few
            from (
                (
                    select r.tenant, r.limit_key, r.priority, r.run_at, r.id from workflow_run as r
                    where place = 'key' and r.type = lane_heads.type and r.tenant = lane_heads.tenant
                        and (r.limit_key, r.priority) > (lane_heads.limit_key, lane_heads.priority)
                        and r.status = 'pending' and r.deleted_at is null
                    order by r.limit_key, r.priority, r.run_at, r.id limit chunk
                ) union all (
                    select r.tenant, r.limit_key, r.priority, r.run_at, r.id from workflow_run as r
                    where place = 'none' and r.type = lane_heads.type and r.tenant = lane_heads.tenant
                        and r.limit_key is null and r.priority > lane_heads.priority
                        and r.status = 'pending' and r.deleted_at is null
                    order by r.limit_key, r.priority, r.run_at, r.id limit 1
                ) union all (
                    select r.tenant, r.limit_key, r.priority, r.run_at, r.id from workflow_run as r
                    where place = 'tenant' and r.type = lane_heads.type and r.tenant > lane_heads.tenant
                        and r.status = 'pending' and r.deleted_at is null
                    order by r.tenant, r.limit_key, r.priority, r.run_at, r.id limit chunk
                )
            ) as f;
            count := coalesce(cardinality(few.ids), 0);
            if count > 0 then
                return query
                select distinct on (f.tenant, f.limit_key, f.priority)
                    lane_heads.type, f.tenant, f.limit_key, f.priority, f.run_at, f.id
                from unnest(few.tenants, few.keys, few.priorities, few.times, few.ids)
                    as f (tenant, limit_key, priority, run_at, id)
                order by f.tenant, f.limit_key, f.priority, f.run_at, f.id;
                tenant := few.tenants[count];
                limit_key := few.keys[count];
                priority := few.priorities[count];
            end if;
            if count > 0 and few.times[count] <= until then
                place := case when tenants is null then 'tenant' else '' end;
            elsif place = 'key' and count < chunk then
                place := 'none';
                priority := -2147483648;
            elsif place = 'none' and count = 0 then
                place := case when tenants is null then 'tenant' else '' end;
            elsif place = 'tenant' and count < chunk then
                place := '';
            else
                place := case when limit_key is null then 'none' else 'key' end;
            end if;
        end loop;
    end loop;
end $$;

-- At most `size` due runs of one lane, from a given run on, without those in `seen` and those that crashed too often.
create or replace function lane_runs(
    type text, tenant text, key text, priority integer, since timestamptz, since_id uuid, most integer, seen uuid[],
    size bigint, now timestamptz
) returns table (run_at timestamptz, id uuid, crashes integer) language plpgsql stable as $$
#variable_conflict use_column
declare
    chunk constant integer := 20;
    r record;
    read integer;
begin
    if lane_runs.key is null then
        return query
        select r.run_at, r.id, r.crashes from workflow_run as r
        where r.type = lane_runs.type and r.tenant = lane_runs.tenant and r.limit_key is null
            and r.priority = lane_runs.priority and (r.run_at, r.id) >= (since, since_id) and r.run_at <= now
            and r.status = 'pending' and r.deleted_at is null and r.crashes <= most and r.id <> all(seen)
        order by r.limit_key, r.priority, r.run_at, r.id limit size;
        return;
    end if;
    loop
        read := 0;
        for r in
            select k.limit_key, k.priority, k.run_at, k.id, k.crashes from workflow_run as k
            where k.type = lane_runs.type and k.tenant = lane_runs.tenant
                and (k.limit_key, k.priority, k.run_at, k.id) >= (lane_runs.key, lane_runs.priority, since, since_id)
                and k.status = 'pending' and k.deleted_at is null
            order by k.limit_key, k.priority, k.run_at, k.id limit chunk
        loop
            if r.limit_key <> lane_runs.key or r.priority <> lane_runs.priority or r.run_at > now or size = 0 then
                return;
            end if;
            read := read + 1;
            since := r.run_at;
            since_id := r.id;
            if r.crashes <= most and r.id <> all(seen) and r.id is distinct from id then
                run_at := r.run_at;
                id := r.id;
                crashes := r.crashes;
                return next;
                size := size - 1;
            end if;
        end loop;
        exit when read < chunk;
    end loop;
end $$;

-- The next due runs by lanes, without runs in `seen` and without lanes that are full with what this claim took so far.
-- Empty: there are no more. Only as many lanes are read as needed, best heads first. Of those lanes only the runs
-- before the head of the next lane count.
create or replace function lane_rows(
    types text[], tenants text[], took jsonb, seen uuid[], most integer, size integer, now timestamptz
) returns jsonb language plpgsql stable as $$
declare
    looked integer := greatest(100, 2 * size);
    lanes jsonb[];
    next jsonb;
    rows jsonb;
begin
    loop
        lanes := array(
            select jsonb_build_object(
                'priority', h.priority, 'run_at', us(h.run_at), 'id', h.id, 'type', h.type, 'tenant', h.tenant,
                'key', h.limit_key
            )
            from (
                select * from lane_heads(types, tenants, null) as h
                where h.run_at <= now order by h.priority, h.run_at, h.id limit looked + 1
            ) as h
        );
        next := lanes[looked + 1];
        select coalesce(jsonb_agg(w.row order by w.priority, w.run_at, w.id), '[]') into rows
        from (
            select l.row || jsonb_build_object('run_at', us(r.run_at), 'id', r.id, 'crashes', r.crashes) as row,
                (l.row ->> 'priority')::integer as priority, r.run_at, r.id
            from jsonb_array_elements(with_quotas(to_jsonb(lanes[:looked]), now)) as l (row)
            cross join lateral lane_runs(
                l.row ->> 'type', l.row ->> 'tenant', l.row ->> 'key', (l.row ->> 'priority')::integer,
                moment((l.row ->> 'run_at')::bigint), (l.row ->> 'id')::uuid, most, seen,
                least(size, quota_left(took, l.row)), now
            ) as r
            where quota_left(took, l.row) is null or quota_left(took, l.row) > 0
        ) as w
        where next is null or (w.priority, w.run_at, w.id) < (
            (next ->> 'priority')::integer, moment((next ->> 'run_at')::bigint), (next ->> 'id')::uuid
        );
        if rows <> '[]' or next is null then
            return rows;
        end if;
        looked := 8 * looked;
    end loop;
end $$;
