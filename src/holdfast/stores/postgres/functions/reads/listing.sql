-- Lists by labels, times, roots and errors, in slices of bounded cost. Each filter that has an index is a driver: a
-- statement that gives the ids of its runs, at most $11 of them. The driver with the fewest runs is chosen, by counting
-- at most 2,000 of each. The runs that it gives are checked against all filters. A slice checks at most 4,000 runs, and
-- then says where the next slice begins. Decision 48 says which index serves which filter.

-- True for a filter that needs slices.
create or replace function is_filtered(filter json) returns boolean language sql immutable as $$
    select coalesce((filter ->> 'roots')::boolean, false) or coalesce(filter ->> 'labels', '{}') <> '{}'
        or coalesce(
            filter ->> 'tenant', filter ->> 'error', filter ->> 'created_since', filter ->> 'created_until', filter ->> 'finished_since',
            filter ->> 'finished_until', filter ->> 'updated_since', filter ->> 'updated_until'
        ) is not null
$$;

-- The lowest id of ours with this time, in milliseconds; null: there is none.
create or replace function id_of_time(milliseconds bigint) returns uuid language sql immutable as $$
    select case when milliseconds < 0 then '00000000-0000-0000-0000-000000000000'::uuid
        when milliseconds < 281474976710656 then (lpad(to_hex(milliseconds), 12, '0') || repeat('0', 20))::uuid end
$$;

create or replace function milliseconds(at timestamptz) returns bigint language sql immutable as $$
    select (extract(epoch from at - timestamptz '1970-01-01 00:00:00+00') * 1000)::bigint
$$;

-- A number of the trail with no row of this time or later before it. Numbers are given in the order of time, except that
-- statements take a while: a minute is allowed for that.
create or replace function trail_from(at timestamptz) returns bigint language plpgsql stable set enable_seqscan = off as $$
declare
    low bigint := coalesce((select e.id from workflow_event as e order by e.id limit 1), 1);
    high bigint := coalesce((select e.id from workflow_event as e order by e.id desc limit 1), 0) + 1;
    middle bigint;
begin
    while high - low > 100 loop
        middle := (low + high) / 2;
        if (select e.created_at from workflow_event as e where e.id >= middle order by e.id limit 1)
            >= at - interval '1 minute' then
            high := middle;
        else
            low := middle;
        end if;
    end loop;
    return low;
end $$;

-- The last change of a run, as it is shown. A checkpoint of the fast path does not change the row of the run, which is
-- leased then; its time is in the trail.
create or replace function changed_at(run uuid, status text, updated_at timestamptz) returns timestamptz
language plpgsql stable as $$
begin
    if status <> 'leased' then
        return updated_at;
    end if;
    return greatest(updated_at, (
        select e.created_at from workflow_event as e where e.workflow_id = run order by e.id desc limit 1
    ));
end $$;

-- The conditions of these filters; those of all lists are in reads.sql.
create or replace function terms_of_filter(filter json, names text[], wanted text[]) returns text language plpgsql immutable
as $$
begin
    return concat_ws(
        ' and ',
        case when (filter ->> 'roots')::boolean then 'r.parent_id is null' end,
        (
            select string_agg(
                'exists (select 1 from workflow_label as l where l.run_id = r.id and l.name = $6[' || n || ']'
                || case when wanted[n] is null then '' else ' and l.value = $7[' || n || ']' end || ')', ' and '
            ) from generate_subscripts(names, 1) as n
        ),
        case when filter ->> 'created_since' is not null then 'r.created_at >= $8[1]' end,
        case when filter ->> 'created_until' is not null then 'r.created_at < $8[2]' end,
        case when filter ->> 'finished_since' is not null then 'r.finished_at >= $8[3]' end,
        case when filter ->> 'finished_until' is not null then 'r.finished_at < $8[4]' end,
        case when filter ->> 'updated_since' is not null then 'changed_at(r.id, r.status, r.updated_at) >= $8[5]' end,
        case when filter ->> 'updated_until' is not null then 'changed_at(r.id, r.status, r.updated_at) < $8[6]' end,
        case json_typeof(filter -> 'error')
            when 'array' then $t$r.status = 'failed' and fingerprint(r.error) collate "C" = any($9)$t$
            when 'string' then $t$r.status = 'failed' and fingerprint(r.error) collate "C" $t$
                || case when filter ->> 'error' like '%\%' then
                    $t$ >= $9[1] and fingerprint(r.error) collate "C" < $9[1] || chr(1114111)$t$ else ' = $9[1]' end
        end
    );
end $$;

-- The drivers of a filter. in_order: by id, newest first, within `$1` and `$2`. Of two that are too large to be counted,
-- the first is taken.
create or replace function drivers_of_filter(filter json, wanted text[], times timestamptz[])
returns table (statement text, in_order boolean) language plpgsql stable as $$
declare
    statuses text[] := case when json_typeof(filter -> 'error') in ('string', 'array') then array['failed']
        else array(select distinct s from unnest(texts(filter -> 'statuses')) as s) end;
    walk constant text := 'select r.id from workflow_run as r where %s and r.id < $1 and r.id >= $2 order by r.id desc limit $11';
    among constant text := 'select r.id from workflow_run as r where %s limit $11';
    ended constant text := 'select r.id from workflow_run as r where r.finished_at is not null and r.expires_at is %s null'
        || ' and r.finished_at >= $8[%s] and r.finished_at < $8[%s]';
begin
    if filter ->> 'key' is not null and filter ->> 'tenant' is not null then
        return query select format(among, 'r.idempotency_key = stored_key($4[4], $4[5])'), false;
    end if;
    return query select 'select l.run_id as id from workflow_label as l where l.name = $6[' || n || ']'
        || case when wanted[n] is null then '' else ' and l.value = $7[' || n || ']' end
        || ' and l.run_id < $1 and l.run_id >= $2 order by l.run_id desc limit $11', true
    from generate_subscripts(wanted, 1) as n;
    if json_typeof(filter -> 'error') = 'string' and filter ->> 'error' not like '%\%' then
        return query select format(walk, $t$r.status = 'failed' and fingerprint(r.error) collate "C" = $9[1]$t$), true;
    elsif json_typeof(filter -> 'error') in ('string', 'array') then
        return query select format(among, terms_of_filter(json_build_object('error', filter -> 'error'), '{}', '{}')), false;
    end if;
    if filter ->> 'parent' is not null then
        return query select format(walk, 'r.parent_id = $5'), true;
    end if;
    if statuses <> '{}' and statuses <@ array['waiting', 'paused', 'failed', 'cancelled'] then
        return query select 'select u.id from (' || string_agg(
            '(' || format(walk, format('r.status = %L', s)) || ')', ' union all '
        ) || ') as u order by u.id desc limit $11', true from unnest(statuses) as s;
    elsif statuses = array['leased'] or statuses = array['pending'] and not coalesce((filter ->> 'deleted')::boolean, false) then
        return query select format(among, format('r.status = %L and r.deleted_at is null', statuses[1])), false;
    end if;
    if times[3] > '-infinity' or times[4] < 'infinity' then
        return query select format(ended, '', 3, 4) || ' union all ' || format(ended, 'not', 3, 4) || ' limit $11', false;
    end if;
    if times[5] > '-infinity' or times[6] < 'infinity' then
        return query select c.statement, false from changes_of_filter(times) as c (statement) where c.statement is not null;
    end if;
    -- Only beside roots and all runs: this walk has no bound, because it passes the waits of other kinds.
    if filter ->> 'waiting_on' is not null and filter ->> 'parent' is null and statuses = '{}' and wanted = '{}'
        and not (filter ->> 'key' is not null and filter ->> 'tenant' is not null)
        and times[3:6] = array['-infinity', 'infinity', '-infinity', 'infinity']::timestamptz[] then
        return query select $t$select distinct s.run_id as id from workflow_step as s
            where s.finished_at is null and s.status = 'waiting' and s.kind = $4[1] and s.run_id < $1 and s.run_id >= $2
            order by s.run_id desc limit $11$t$, true;
    end if;
    if filter ->> 'tenant' is not null then
        return query select case when (filter ->> 'roots')::boolean
            then format(walk, 'r.tenant = $4[4] and r.parent_id is null') else walk_of_tenant() end, true;
        return;
    end if;
    if (filter ->> 'roots')::boolean then
        return query select format(walk, 'r.parent_id is null'), true;
    end if;
    return query select format(walk, 'true'), true;
end $$;

-- All runs of a tenant. Roots and children have an index each, so that a start writes into one of them.
create or replace function walk_of_tenant() returns text language plpgsql immutable as $$
declare
    part constant text := '(select r.id from workflow_run as r where r.tenant = $4[4] and r.parent_id is %s null'
        || ' and r.id < $1 and r.id >= $2 order by r.id desc limit $11)';
begin
    return format('select u.id from (' || part || ' union all ' || part || ') as u order by u.id desc limit $11', '', 'not');
end $$;

-- The place where the next slice begins, made from the next id of the tenant: the last id that was walked may be a run of
-- another tenant, which nobody may learn. Null: there is none.
create or replace function place_of_tenant(tenant text, under uuid) returns uuid language plpgsql stable as $$
declare
    following uuid;
    digits text;
begin
    select u.id into following from (
        (select r.id from workflow_run as r where r.tenant = place_of_tenant.tenant and r.parent_id is null and r.id < under
         order by r.id desc limit 1)
        union all
        (select r.id from workflow_run as r where r.tenant = place_of_tenant.tenant and r.parent_id is not null and r.id < under
         order by r.id desc limit 1)
    ) as u order by u.id desc limit 1;
    digits := replace(following::text, '-', '');
    for place in reverse 32..1 loop  -- one more: the place itself is left out by the next slice
        if substr(digits, place, 1) <> 'f' then
            return (left(digits, place - 1) || to_hex(('x' || substr(digits, place, 1))::bit(4)::integer + 1)
                || repeat('0', 32 - place))::uuid;
        end if;
    end loop;
    return null;
end $$;

-- The driver by the last change: the rows of the trail of that time, and the runs that change without one. Null: the
-- trail has too many rows of that time.
create or replace function changes_of_filter(times timestamptz[]) returns text language plpgsql stable
set enable_seqscan = off as $$
declare
    low bigint := case when times[5] > '-infinity' then trail_from(times[5]) else 0 end;
    high bigint := case when times[6] < 'infinity' then trail_from(times[6] + interval '2 minutes') + 101 end;
    many constant integer := 10000;
begin
    if (
        select count(*) from (
            select 1 from workflow_event as e where e.id >= low and (high is null or e.id < high) order by e.id limit many + 1
        ) as c
    ) > many then
        return null;
    end if;
    return format($t$select distinct c.id from (
        (select r.id from workflow_run as r where r.status = 'leased' limit $11)
        union all (select r.id from workflow_run as r where r.status = 'pending' and r.deleted_at is null limit $11)
        union all select e.workflow_id from workflow_event as e
            where e.id >= %s and e.id < %s and e.created_at >= $8[5] and e.created_at < $8[6]
    ) as c limit $11$t$, low, coalesce(high, 9223372036854775807));
end $$;

-- One slice: {"runs": a page, "after": the id after which the next slice begins, or null at the end}.
create or replace function list_page(filter json, lim integer, after uuid, budget bigint default 8388608) returns json
language plpgsql stable set search_path from current set cursor_tuple_fraction = 1 set jit = off
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    slice record := slice_ids(filter, lim, after);
begin
    return json_build_object(
        'runs', listed_runs(slice.ids[:greatest(0, lim)], coalesce((filter ->> 'values')::boolean, true), budget),
        'after', slice.next_after
    );
end $$;

-- The same with a few fields of each run, and at most 1,000 runs.
create or replace function outlines_page(filter json, lim integer, after uuid) returns json
language plpgsql stable set search_path from current set jit = off
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    most integer := least(greatest(0, lim), 1000);
    slice record := slice_ids(filter, most, after);
begin
    return json_build_object('runs', outlined_runs(slice.ids[:most]), 'after', slice.next_after);
end $$;

-- The ids of a slice's runs, newest first, and the id after which the next slice begins. It ends when it has `enough` of
-- them, or a few more. Call it with the settings of list_page.
create or replace function slice_ids(filter json, enough integer, after uuid, out ids uuid[], out next_after uuid)
language plpgsql stable as $$
declare
    candidates constant integer := 2000;
    last constant uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
    names text[] := array(select l.key from json_each(coalesce(filter -> 'labels', '{}')) as l);
    wanted text[] := array(select l.value from json_each_text(coalesce(filter -> 'labels', '{}')) as l);
    times timestamptz[] := array[
        coalesce((filter ->> 'created_since')::timestamptz, '-infinity'), coalesce((filter ->> 'created_until')::timestamptz, 'infinity'),
        coalesce((filter ->> 'finished_since')::timestamptz, '-infinity'), coalesce((filter ->> 'finished_until')::timestamptz, 'infinity'),
        coalesce((filter ->> 'updated_since')::timestamptz, '-infinity'), coalesce((filter ->> 'updated_until')::timestamptz, 'infinity')
    ];
    texts text[] := array[filter ->> 'waiting_on', left(filter ->> 'type', -1), filter ->> 'type', filter ->> 'tenant', filter ->> 'key'];
    errors text[] := case json_typeof(filter -> 'error') when 'array' then texts(filter -> 'error')
        when 'string' then array[case when filter ->> 'error' like '%\%' then left(filter ->> 'error', -1) else filter ->> 'error' end] end;
    parent uuid := (filter ->> 'parent')::uuid;
    statuses text[] := texts(filter -> 'statuses');
    terms text := concat_ws(' and ', terms_of_list(filter), nullif(terms_of_filter(filter, names, wanted), ''));
    matching text := 'select coalesce(array_agg(r.id order by r.id desc), ''{}'') from workflow_run as r where r.id = any($10) and ' || terms;
    until timestamptz := least(times[2], times[4], times[6]);
    under uuid := last;
    down_to uuid := '00000000-0000-0000-0000-000000000000';
    odd uuid[] := '{}';
    driver record;
    best record;
    fewest integer;
    found uuid[] := '{}';
    matches uuid[];
    size integer := least(greatest(enough, 100), 4000);
    left_over integer := 4000;
    walk text;
    checked text;
    walked_to uuid;  -- the last id of a slice that is not the last one
begin
    -- No run has ended or changed before its start: so any `until` bounds the ids.
    if times[1] > '-infinity' or until < 'infinity' then
        odd := array(
            select r.id from workflow_run as r
            where is_odd_id(r.id, r.created_at) and r.created_at >= times[1] and r.created_at < until limit candidates + 1
        );
        if cardinality(odd) <= candidates then
            down_to := case when times[1] > '-infinity' then coalesce(id_of_time(milliseconds(times[1]) - 3600001), last) else down_to end;
            under := case when until < 'infinity' then coalesce(id_of_time(milliseconds(until) + 3600002), last) else last end;
        else
            odd := '{}';
        end if;
    end if;
    -- An id of all ones is below nothing: it is looked at by itself.
    if under = last then
        odd := odd || last;
    end if;
    for driver in
        select d.*, 0 as count, count(*) over () as drivers
        from drivers_of_filter(filter, wanted, times) with ordinality as d (statement, in_order, place) order by d.place
    loop
        if driver.drivers = 1 and driver.in_order then
            best := driver;  -- there is nothing to choose
            exit;
        end if;
        execute 'select count(*) from (' || driver.statement || ') as c' into driver.count
        using under, down_to, statuses, texts, parent, names, wanted, times, errors, ids, candidates + 1;
        continue when not driver.in_order and driver.count > candidates;
        if fewest is null or driver.count < fewest then
            best := driver;
            fewest := driver.count;
        end if;
    end loop;
    if not best.in_order then
        execute 'select array_agg(c.id) from (' || best.statement || ') as c' into ids
        using under, down_to, statuses, texts, parent, names, wanted, times, errors, ids, candidates;
        execute matching into found using after, down_to, statuses, texts, parent, names, wanted, times, errors, ids, candidates;
    else
        execute matching into odd using after, down_to, statuses, texts, parent, names, wanted, times, errors, odd, candidates;
        under := least(under, after);
        -- A walk over the table of runs checks each run as it comes to it: to find it again by its id takes five times as
        -- long. No text of a caller is in the statements of drivers.
        checked := replace(best.statement, 'select u.id from', 'select u.id, u.fits from');
        checked := replace(checked, 'select r.id from', 'select r.id, (' || terms || ') as fits from');
        walk := 'select coalesce(array_agg(c.id order by c.id desc), ''{}''), '
            || case when checked = best.statement then 'null::uuid[]'
            else 'coalesce(array_agg(c.id order by c.id desc) filter (where c.fits), ''{}'')' end || ' from (' || checked || ') as c';
        loop
            execute walk into ids, matches
            using under, down_to, statuses, texts, parent, names, wanted, times, errors, ids, size;
            if matches is null then
                execute matching into matches using after, down_to, statuses, texts, parent, names, wanted, times, errors, ids, candidates;
            end if;
            found := found || matches;
            left_over := left_over - cardinality(ids);
            exit when cardinality(ids) < size;
            under := ids[cardinality(ids)];
            size := least(2 * size, left_over);
            if cardinality(found) >= enough or left_over <= 0 then
                next_after := case when texts[4] is null then under else place_of_tenant(texts[4], under) end;
                walked_to := under;
                exit;
            end if;
        end loop;
        found := array(
            select distinct f.id from unnest(found || odd) as f (id) where walked_to is null or f.id >= walked_to order by f.id desc
        );
    end if;
    ids := array(select f.id from unnest(found) as f (id) where after is null or f.id < after order by f.id desc);
end $$;

-- These runs as a page, newest first.
create or replace function listed_runs(runs uuid[], whole boolean, budget bigint) returns json language plpgsql stable as $$
declare
    records refcursor;
begin
    open records no scroll for execute 'select run_record(r::workflow_run)::text from (select ' || list_columns(whole)
        || ' from workflow_run as r where r.id = any($1) order by r.id desc) as r' using runs;
    return page_of(records, budget);
end $$;

-- A few fields of these runs, newest first.
create or replace function outlined_runs(runs uuid[]) returns json language plpgsql stable as $$
begin
    return (
        select coalesce(json_agg(json_build_object(
            'id', r.id, 'type', r.type, 'status', r.status,
            'present', case when r.chain is null then coalesce(r.present, r.id) else coalesce((
                select w.present from workflow_run as w where w.id = r.chain
            ), r.id) end,
            'pause_asked', r.pause_asked_by is not null, 'created_at', shown_at(r.created_at),
            'started_at', shown_at(r.started_at), 'finished_at', shown_at(r.finished_at)
        ) order by r.id desc), '[]') from workflow_run as r where r.id = any(runs)
    );
end $$;

-- The children of these runs by status, at most `most` of each. Runs without children, and those of others, are left out.
-- A range of one parent, in the order of its index: where most runs have one parent, the planner takes any
-- index for an equality with a limit, and reads all runs to find that a run has no child.
create or replace function children(runs uuid[], tenant text, most integer default 10000) returns json language plpgsql stable
set search_path from current set enable_seqscan = off set enable_sort = off as $$
begin
    return (
        select coalesce(json_agg(json_build_object('run', c.id, 'by_status', c.by_status, 'more', c.total > most) order by c.place), '[]')
        from (
            select p.id, p.place, k.by_status, k.total
            from (
                select r.id, min(u.place) as place from unnest(runs) with ordinality as u (id, place)
                join workflow_run as r on r.id = u.id
                where r.deleted_at is null and (children.tenant is null or r.tenant = children.tenant)
                group by r.id
            ) as p
            cross join lateral (
                select json_object_agg(s.status, s.count) filter (where s.count > 0) as by_status, sum(s.total) as total from (
                    select n.status, count(*) filter (where n.number <= most) as count, count(*) as total from (
                        select w.status, row_number() over () as number from (
                            select w.status from workflow_run as w
                            where w.parent_id >= p.id and w.parent_id <= p.id and w.deleted_at is null
                            order by w.parent_id, w.id limit most::bigint + 1
                        ) as w
                    ) as n group by n.status
                ) as s
            ) as k
            where k.total > 0
        ) as c
    );
end $$;
