-- load: one page of the steps that a held run has recorded; and the size of the values of a run, at little cost. A
-- large value is stored compressed or outside of its row. Its stored size is known at once, its real size only after it
-- was read. So values that are stored in more than 64 KiB are never read just to be measured.

-- The number of bytes that all steps of a run take; 'infinity' when they are stored in more than 64 KiB, or there are more than
-- 1,000.
create or replace function steps_bytes(run uuid) returns double precision language plpgsql stable as $$
declare
    count bigint;
    stored bigint;
begin
    select count(*), coalesce(sum(s.stored), 0) into count, stored from (
        select coalesce(pg_column_size(w.output), 0) + coalesce(pg_column_size(w.error), 0)
            + coalesce(pg_column_size(w.ask), 0) + coalesce(pg_column_size(w.wake), 0) as stored
        from workflow_step as w where w.run_id = run limit 1001
    ) as s;
    if count > 1000 or stored > 65536 then
        return 'infinity';
    end if;
    return (select coalesce(sum(step_bytes(w)), 0) from workflow_step as w where w.run_id = run);
end $$;

create or replace function step_bytes(s workflow_step) returns bigint language sql immutable as $$
    select 200 + octet_length(s.key) + coalesce(octet_length(s.output::text), 0)
        + coalesce(octet_length(s.error::text), 0) + coalesce(octet_length(s.ask::text), 0)
        + coalesce(octet_length(s.wake::text), 0)
$$;

-- One page under the lease's fence, with at most `bytes` bytes of values, but at least one step.
create or replace function load(run uuid, held_fence bigint, after integer, bytes bigint) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off
set jit = off as $$
declare
    r workflow_run;
    s workflow_step;
    steps text[] := '{}';
    size bigint;
    more boolean := false;
    first boolean := after < 0;
begin
    select * into r from workflow_run as x where x.id = run;
    if r.status is distinct from 'leased' or r.fence <> held_fence or r.lease_until < clock() then
        return json_build_object('answer', case when r.status = 'cancelled' then 'cancelled' else 'lost' end);
    end if;
    if first then
        bytes := bytes - octet_length(r.payload::text) - coalesce(octet_length(r.labels::text), 0);
    end if;
    for s in select * from workflow_step as w where w.run_id = run and w.seq > after order by w.seq loop
        size := step_bytes(s);
        if size > bytes and cardinality(steps) > 0 then
            more := true;
            exit;
        end if;
        bytes := bytes - size;
        steps := steps || step_record(s)::text;
    end loop;
    -- The JSON is concatenated by hand, as in claim: a large value is copied once less.
    return (
        '{"answer":"applied","more":' || to_json(more)::text
        || case when first then ',"params":' || to_json(r.payload::text)::text || ',"labels_json":'
            || coalesce(to_json(r.labels::text)::text, 'null') else '' end
        || ',"steps":[' || array_to_string(steps, ',') || ']}'
    )::json;
end $$;
