-- Due schedules, and the runs for their times: one run for each time, whoever fires it. Ids are collected first, and
-- rows are found by them: a planner that has seen empty tables may choose any join.

create or replace function due_schedules(most bigint, after uuid, budget bigint default 8388608) returns json language plpgsql
set search_path from current set cursor_tuple_fraction = 1 set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    page uuid[] := array(
        select due.id from (
            select s.id from workflow_schedule as s
            where not s.paused and s.next_at is not null and s.next_at <= now
            union
            select s.id from workflow_schedule as s
            where s.waiting <> '{}' and not s.paused and not schedule_is_open(s.id)
        ) as due
        where after is null or due.id > after order by due.id limit greatest(0, most)
    );
    records refcursor;
begin
    open records no scroll for select schedule_record(shown.s)::text from (
        select s from workflow_schedule as s where s.id = any(page) order by s.id
    ) as shown;
    return page_of(records, budget);
end $$;

-- The next instant at which a keeper may find a schedule to fire; at once, whatever the clock says, when a queued time can begin. `besides`:
-- pairs of id and revision that are left out.
create or replace function next_schedule(besides json) returns bigint language plpgsql as $$
declare
    left_out text[] := array(select (b ->> 0) || ' ' || (b ->> 1) from json_array_elements(besides) as b);
begin
    if exists (
        select 1 from workflow_schedule as s
        where s.waiting <> '{}' and not s.paused and s.id || ' ' || s.rev <> all(left_out)
            and not schedule_is_open(s.id)
    ) then
        return 0;
    end if;
    return (
        select us(s.next_at) from workflow_schedule as s
        where not s.paused and s.next_at is not null and s.id || ' ' || s.rev <> all(left_out)
        order by s.next_at limit 1
    );
end $$;

-- Ids of its runs under which another run exists. A run that is fired by hand has an id of its own.
create or replace function taken_ids(fires json) returns json language plpgsql stable as $$
declare
    ids uuid[] := array(select (f -> 'run' ->> 'id')::uuid from json_array_elements(fires) as f);
begin
    return (
        with there as materialized (
            select r.id, r.tenant, r.labels from workflow_run as r where r.id = any(ids)
        )
        select json_agg(t.id order by f.place)
        from there as t join json_array_elements(fires) with ordinality as f (one, place)
            on t.id = (f.one -> 'run' ->> 'id')::uuid
        where not is_same_time(f.one -> 'run', t.tenant, t.labels)
    );
end $$;

-- True when the run with this id was started for the same time of the schedule.
create or replace function is_same_time(run json, tenant text, labels json) returns boolean language sql immutable as $$
    select run ->> 'tenant' = tenant
        and ((run ->> 'labels')::json ->> 'schedule') is not distinct from (labels ->> 'schedule')
        and ((run ->> 'labels')::json ->> 'fire_at') is not distinct from (labels ->> 'fire_at')
$$;

-- Checks only the first few, so that a firing costs the same however many runs are open.
create or replace function forget_ended(schedule uuid) returns void language plpgsql as $$
declare
    first_few uuid[] := array(
        select f.run_id from workflow_firing as f where f.schedule_id = schedule order by f.run_id limit 100
    );
    still_open uuid[] := array(
        select r.id from workflow_run as r where r.id = any(first_few) and (
            r.finished_at is null
            or r.present is not null
            and (select p.finished_at is null from workflow_run as p where p.id = r.present)
        )
    );
begin
    delete from workflow_firing as f
    where f.schedule_id = schedule and f.run_id <= first_few[cardinality(first_few)] and f.run_id <> all(still_open);
end $$;

-- Start the run; null if it was started for this time before.
create or replace function fire_one(s workflow_schedule, fire json, is_by_hand boolean, now timestamptz) returns uuid
language plpgsql as $$
declare
    run json := fire -> 'run';
    answer json := start_runs(json_build_array(run), null, now, false) -> 0;
begin
    -- Another run got this id since it was checked: nothing is done, and the same call again sees that run.
    if answer ->> 'error' = 'duplicate_run' and not is_by_hand
        and taken_ids(json_build_array(fire)) is not null then
        raise exception using errcode = 'serialization_failure', message = 'another run took the id ' || (run ->> 'id');
    end if;
    if s.overlap <> 'allow' then
        insert into workflow_firing (schedule_id, run_id) values (s.id, (run ->> 'id')::uuid) on conflict do nothing;
    end if;
    return case when answer -> 'error' is null then (answer ->> 'id')::uuid end;
end $$;

-- Decide about a time that has come: fire, queue or skip it.
create or replace function place_of(s workflow_schedule, how text) returns text language plpgsql as $$
begin
    if how <> 'rhythm' or s.overlap = 'allow' then
        return 'start';
    elsif s.overlap = 'skip' then
        return case when schedule_is_open(s.id) then 'skip' else 'start' end;
    elsif cardinality(s.waiting) = 0 and not schedule_is_open(s.id) then
        return 'start';
    end if;
    return case when cardinality(s.waiting) < 1000 then 'wait' else 'skip' end;
end $$;

create or replace function fire_schedule(firing json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    fires json := coalesce(firing -> 'fires', '[]');
    how text := firing ->> 'by';
    first_at timestamptz := moment((fires -> 0 ->> 'at')::bigint);
    taken json;
    one json;
    at timestamptz;
    run uuid;
    s workflow_schedule;
    started uuid[] := '{}';
    passed_over integer := 0;
    put_in_line integer := 0;
begin
    perform lock_topics(plan_topics((select json_agg(f -> 'run') from json_array_elements(fires) as f)));
    select * into s from workflow_schedule as w
    where w.tenant = firing ->> 'tenant' and w.name = firing ->> 'name' for update;
    if s.id is distinct from (firing ->> 'schedule')::uuid or s.rev <> (firing ->> 'rev')::bigint
        or s.paused and how <> 'hand' then
        return json_build_object('answer', 'lost');
    end if;
    taken := case when how <> 'hand' then taken_ids(fires) end;
    if taken is not null then
        return json_build_object('answer', 'taken', 'taken', taken);
    end if;
    perform forget_ended(s.id);
    if how = 'queue' then
        if s.waiting[1] is distinct from first_at or schedule_is_open(s.id) then
            return json_build_object('answer', 'lost');
        end if;
        s.waiting := s.waiting[2:];
    elsif how = 'rhythm' then
        s.next_at := moment((firing ->> 'next_at')::bigint);
        s.last_missed_at := coalesce(moment((firing ->> 'missed_at')::bigint), s.last_missed_at);
    end if;
    for one in select value from json_array_elements(fires) loop
        at := moment((one ->> 'at')::bigint);
        case place_of(s, how)
            when 'start' then
                run := fire_one(s, one, how = 'hand', now);
                if run is not null then
                    started := started || run;
                    s.last_at := at;
                    s.last_run := run;
                end if;
            when 'skip' then
                passed_over := passed_over + 1;
                s.last_skipped_at := at;
            else
                put_in_line := put_in_line + 1;
                s.waiting := s.waiting || at;
        end case;
    end loop;
    update workflow_schedule as w
    set next_at = s.next_at, last_missed_at = s.last_missed_at, waiting = s.waiting, last_at = s.last_at,
        last_run = s.last_run, last_skipped_at = s.last_skipped_at, fired = w.fired + cardinality(started),
        skipped = w.skipped + passed_over, rev = w.rev + 1, updated_at = now
    where w.id = s.id;
    perform hint();
    return json_build_object(
        'answer', 'applied', 'started', to_json(started), 'skipped', passed_over, 'queued', put_in_line
    );
end $$;
