-- What a plain worker may take, for a claim by prefix. It costs one look into the index for each type and priority that has
-- pending runs, and at most 64 rows of each type that the caller names: runs that have ended, wait, are due later or are of
-- other types cost nothing, nor does a long queue.

-- The types that have pending runs, are enabled in the registry and are no plans; of which runtime, null: of any.
create or replace function claimable_types() returns table (type text, runtime text) language plpgsql stable rows 1
set search_path from current set enable_seqscan = off set jit = off as $$
declare
    entry record;
begin
    type := '';
    loop
        select r.type into type from workflow_run as r
        where r.status = 'pending' and r.deleted_at is null and r.type > claimable_types.type
        order by r.type, r.priority, r.run_at, r.id limit 1;
        exit when not found;
        select e.runtime, e.is_enabled into entry from entries_of(array[claimable_types.type]) as e;
        continue when not coalesce(entry.is_enabled, true) or exists (
            select 1 from workflow_definition as d where d.type = claimable_types.type and d.kind = 'plan'
        );
        runtime := entry.runtime;
        return next;
    end loop;
end $$;

-- The first runs of a type that are due, in the order of the queue. More than one: others may be about to take some.
create or replace function claimable_runs(of_type text) returns setof uuid language plpgsql stable rows 1
set search_path from current set enable_seqscan = off set jit = off as $$
declare
    now timestamptz := clock();
    missing bigint := 64;
    here bigint;
    level integer := -1;
begin
    loop
        select r.priority into level from workflow_run as r
        where r.status = 'pending' and r.deleted_at is null and r.type = of_type and r.priority > level
        order by r.priority, r.run_at, r.id limit 1;
        exit when not found;
        return query select r.id from workflow_run as r
        where r.status = 'pending' and r.deleted_at is null and r.type = of_type and r.priority = level
            and r.run_at <= now and r.kind = 'code'
        order by r.run_at, r.id limit missing;
        get diagnostics here = row_count;
        missing := missing - here;
        exit when missing <= 0;
    end loop;
end $$;

-- FOR UPDATE on this view locks the row of the run that is answered, and no other: functions are not locked, and the view
-- becomes part of the statement. A claim that another worker has made meanwhile shows when the row is locked, by the
-- conditions here. They are written so that no index serves them: the planner would prefer it to the id, as long as it does
-- not know how many runs are pending.
create or replace view workflow_run_claimable as
select r.id, t.type, t.runtime, r.tenant, r.priority, r.run_at, r.payload, r.attempt, r.max_attempts, r.limit_key,
    r.created_at
from claimable_types() as t
cross join lateral claimable_runs(t.type) as c (id)
join workflow_run as r on r.id = c.id
where r.status || '' = 'pending' and r.deleted_at is null and r.run_at <= clock();
