-- Followers: readers that ask again and again for what is new.

-- A row of the trail.
create or replace function entry_record(e workflow_event) returns text language sql stable as $$
    select json_build_object(
        'seq', e.id, 'run', e.workflow_id, 'type', e.event_type, 'at', shown_at(e.created_at),
        'data_json', e.data::text, 'told', e.told
    )::text
$$;

-- The records of a cursor, at most `lim`, and at most `budget` bytes; at least one if `needs_one`. Returns also what is
-- left of both, and whether records are left over: then no rows are left.
create or replace function some_of(
    records refcursor, needs_one boolean, inout lim integer, inout budget bigint, out page text[], out cut boolean
) language plpgsql as $$
declare
    record text;
begin
    page := '{}';
    cut := false;
    loop
        fetch records into record;
        exit when not found;
        budget := budget - octet_length(record);
        cut := lim <= 0 or (budget < 0 and not needs_one);
        if cut then
            lim := 0;
            exit;
        end if;
        page := page || record;
        lim := lim - 1;
        needs_one := false;
    end loop;
    close records;
end $$;

-- The news of runs, each with the number of the last row that its follower has; all at one instant. One statement finds
-- the runs with news, by two lookups for each run; then the rows of each of those are read. The forms of the statements
-- leave the planner no choice: see commit.sql. An order by id alone would allow it the primary key.
create or replace function follow(runs uuid[], afters bigint[], tenant text, lim integer default 1000, budget bigint default 8388608)
returns json language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    one record;
    records refcursor;
    part record;
    page text[];
    more boolean;
    has_any boolean := false;
    answer text[] := '{}';
begin
    if cardinality(runs) > 1000 then
        perform refuse('UsageError', 'runs: at most 1,000 in one call, not ' || cardinality(runs));
    end if;
    lim := greatest(0, lim);
    for one in
        select a.run, a.after, r.id, r.tenant, r.status, coalesce(h.present, r.present, r.id) as present, e.later
        from followed_rows(runs, afters) as a
        left join workflow_run as r on r.id = any(array[a.run]) and r.deleted_at is null
            and (follow.tenant is null or r.tenant = follow.tenant)
        left join workflow_run as h on h.id = any(array[r.chain])
        cross join lateral (
            select exists (
                select 1 from workflow_event as e where e.workflow_id = r.id and e.id > a.after
                order by e.workflow_id, e.id limit 1
            ) as later
        ) as e
        where r.id is null or r.finished_at is not null or coalesce(h.present, r.present, r.id) <> r.id or e.later
        order by a.place
    loop
        if one.id is null then
            answer := answer || json_build_object('run', one.run, 'gone', true)::text;
            continue;
        end if;
        more := one.later;
        page := '{}';
        if more and lim > 0 then
            open records no scroll for
                select entry_record(e) from workflow_event as e where e.workflow_id = one.id and e.id > one.after
                order by e.workflow_id, e.id limit lim::bigint + 1;
            part := some_of(records, not has_any, lim, budget);
            lim := part.lim;
            budget := part.budget;
            more := part.cut;
            page := part.page;
            has_any := has_any or page <> '{}';
        end if;
        answer := answer || format(
            '{"run":"%s","tenant":%s,"status":"%s","present":"%s","more":%s,"entries":[%s]}',
            one.id, to_json(one.tenant), one.status, one.present, to_json(more), array_to_string(page, ',')
        );
    end loop;
    return '[' || array_to_string(answer, ',') || ']';
end $$;

-- Declared to be few rows, so that the planner starts with them.
create or replace function followed_rows(runs uuid[], afters bigint[]) returns table (run uuid, after bigint, place bigint)
language plpgsql volatile rows 1 as $$
begin
    return query select * from unnest(runs, afters) with ordinality as a (run, after, place) where a.run is not null;
end $$;

-- A page of the trail over all runs, and the number after which the next page begins; `after` null: from now on. At most
-- `scan` rows are looked at. The number is one up to which nothing new can appear: see settled_to.
create or replace function follow_all(
    filter json, after bigint, lim integer default 1000, budget bigint default 8388608, scan integer default 10000
) returns json language plpgsql volatile
set search_path from current set cursor_tuple_fraction = 1 set jit = off as $$
declare
    last bigint;
    end_at bigint;
    looked bigint;
    part record;
    seq bigint := after;
begin
    if after is null then
        return json_build_object('seq', settled_to(0, clock()));
    elsif not exists (select 1 from workflow_event as e where e.id > after) then
        return json_build_object('seq', after);
    end if;
    last := greatest(after, settled_to(after, clock()));
    select max(e.id), count(*) into end_at, looked from (
        select w.id from workflow_event as w where w.id > after and w.id <= last order by w.id limit greatest(1, scan)
    ) as e;
    if looked < greatest(1, scan) then
        end_at := last;
    end if;
    part := some_of(trail_records(filter, after, end_at, greatest(0, lim)::bigint + 1), true, greatest(0, lim), budget);
    if not part.cut then
        seq := end_at;
    elsif part.page <> '{}' then
        seq := (part.page[cardinality(part.page)]::json ->> 'seq')::bigint;
    end if;
    return '{"entries":[' || array_to_string(part.page, ',') || '],"seq":' || seq
        || ',"more":' || (part.cut or end_at < last) || '}';
end $$;
