-- show_running: keep the steps that a worker executes now, each row under its fence like an item of a commit. A run that
-- another session has locked is left out: the worker sends it again.

create or replace function show_running(worker text, rows json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    written uuid[];
begin
    perform refuse('UsageError', 'the running steps of run ' || coalesce(l.run::text, 'null') || ' are an array of 1 to 20 '
                   || 'objects, each with step, attempt and started_at')
    from running_rows(rows) as l where not is_running(l.steps);
    with held as materialized (
        select r.id, l.fence, l.started_at, l.steps, l.started_at is not null and r.started_fence <> r.fence as begins
        from running_rows(rows) as l
        join workflow_run as r on r.id = any(array[l.run])
        where r.status || '' = 'leased' and r.fence = l.fence and r.lease_until >= now
        for no key update of r skip locked
    ), begun as (
        update workflow_run as r
        set started_fence = r.fence, started_at = coalesce(r.started_at, moment(h.started_at)), rev = r.rev + 1
        from held as h where r.id = any(array[h.id]) and h.begins
    ), told as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select h.id, 'started', ('{"at":' || h.started_at || '}')::json, now, false
        from held as h where h.begins order by h.id
    ), kept as (
        insert into workflow_running as w (run_id, fence, steps) select h.id, h.fence, h.steps from held as h
        on conflict (run_id) do update set fence = excluded.fence, steps = excluded.steps
    )
    select array_agg(h.id) into written from held as h;
    return (
        select coalesce(json_agg(coalesce(l.run = any(written), false) order by l.place), '[]')
        from running_rows(rows) as l
    );
end $$;

-- Declared to be few rows, as in renew.
create or replace function running_rows(given json) returns table (
    run uuid, fence bigint, started_at bigint, steps json, place bigint
) language plpgsql volatile rows 1 as $$
begin
    return query select * from rows from (json_to_recordset(given) as (
        run uuid, fence bigint, started_at bigint, steps json
    )) with ordinality as l (run, fence, started_at, steps, place);
end $$;

-- True for steps that readers can show: views read them for everybody.
create or replace function is_running(steps json) returns boolean language plpgsql stable as $$
begin
    if json_typeof(steps) is distinct from 'array' or json_array_length(steps) not between 1 and 20
        or octet_length(steps::text) > 65536 then
        return false;
    end if;
    return (
        select bool_and(
            json_typeof(one) = 'object' and coalesce(one ->> 'step', '') <> '' and (one ->> 'attempt')::integer > 0
            and isfinite((one ->> 'started_at')::timestamptz)
        ) is true
        from json_array_elements(steps) as one
    );
exception when others then
    return false;
end $$;

-- The steps that the holder of a run executes now and that have no record of this try, oldest first. A plan has its rows
-- before they are executed; a step that is retried has the row of its last try.
create or replace function running_steps(r workflow_run) returns json language plpgsql stable as $$
begin
    return (
        select coalesce(json_agg(one.value order by one.place), '[]')
        from workflow_running as w
        cross join lateral json_array_elements(w.steps) with ordinality as one (value, place)
        left join workflow_step as s on s.run_id = w.run_id and s.key = one.value ->> 'step'
        where w.run_id = r.id and w.fence = r.fence and (
            s.key is null or s.status = 'pending'
            or s.status = 'ready' and s.attempts < (one.value ->> 'attempt')::integer
        )
    );
end $$;
