-- The runs that a worker in user SQL may take, for a claim by prefix. The cost is one index lookup for each type and
-- priority that has pending runs, and at most 64 rows of each type that the caller names. Runs that have ended, wait,
-- are due later or have other types cost nothing; neither does a long queue.

-- The types that have pending runs, are enabled in the registry and are not plans, each with its runtime (null: any).
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

-- The first due runs of a type, in the order of the queue. More than one, because other workers may be taking some.
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

-- FOR UPDATE on this view locks the row of the returned run and no other: functions are not locked, and the view is
-- inlined. If another worker has claimed the run meanwhile, the conditions here notice it when the row is locked. The
-- conditions are written so that no index serves them: the planner would prefer such an index to the id as long as it
-- does not know how many runs are pending.
create or replace view workflow_run_claimable as
select r.id, t.type, t.runtime, r.tenant, r.priority, r.run_at, r.payload, r.attempt, r.max_attempts, r.limit_key,
    r.created_at
from claimable_types() as t
cross join lateral claimable_runs(t.type) as c (id)
join workflow_run as r on r.id = c.id
where r.status || '' = 'pending' and r.deleted_at is null and r.run_at <= clock();
