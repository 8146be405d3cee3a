-- Walks go from one priority to the next by an index, and read each priority only up to `run_at <= :now`. Runs that
-- are not due, finished, or of other types are never read. There are three walks: all runs of a type; a lane, which is
-- a type of one tenant with one limit_key or with none; and the runs of a tenant and type that have a limit_key.

-- :first    The first priority, and the revision of the limits: read here, it costs no statement of its own.
select priority, (select mark from workflow_limit_mark where id = 1) from workflow_run
where type = :type and status = 'pending' and deleted_at is null
order by priority limit 1

-- :next_priority
select priority from workflow_run
where type = :type and priority > :priority and status = 'pending' and deleted_at is null
order by priority limit 1

-- :due
select priority, run_at, id, crashes from workflow_run
where type = :type and priority = :priority and run_at <= :now and status = 'pending' and deleted_at is null
order by run_at, id

-- :due_named    The same, with the names that limits apply to.
select priority, run_at, id, crashes, type, tenant, limit_key from workflow_run
where type = :type and priority = :priority and run_at <= :now and status = 'pending' and deleted_at is null
order by run_at, id

-- :next_run_at
select min(run_at) from workflow_run
where type = :type and priority = :priority and status = 'pending' and deleted_at is null

-- :lane_first    The same for the runs of a tenant without a key, and whether the tenant has runs with a key.
select
    (
        select priority from workflow_run
        where tenant = :tenant and type = :type and limit_key is null and status = 'pending' and deleted_at is null
        order by priority limit 1
    ),
    (select mark from workflow_limit_mark where id = 1),
    exists (
        select 1 from workflow_run
        where tenant = :tenant and type = :type and status = 'pending' and deleted_at is null
            and limit_key is not null
    )

-- :lane_next_priority
select priority from workflow_run
where tenant = :tenant and type = :type and limit_key is :key and priority > :priority
    and status = 'pending' and deleted_at is null
order by priority limit 1

-- :lane_due
select priority, run_at, id, crashes, type, tenant, limit_key from workflow_run
where tenant = :tenant and type = :type and limit_key is :key and priority = :priority and run_at <= :now
    and status = 'pending' and deleted_at is null
order by run_at, id

-- :lane_next_run_at
select min(run_at) from workflow_run
where tenant = :tenant and type = :type and limit_key is :key and priority = :priority
    and status = 'pending' and deleted_at is null

-- :keyed_next_priority
select priority from workflow_run
where tenant = :tenant and type = :type and priority > :priority
    and status = 'pending' and deleted_at is null and limit_key is not null
order by priority limit 1

-- :keyed_due
select priority, run_at, id, crashes, type, tenant, limit_key from workflow_run
where tenant = :tenant and type = :type and priority = :priority and run_at <= :now
    and status = 'pending' and deleted_at is null and limit_key is not null
order by run_at, id

-- :keyed_next_run_at
select min(run_at) from workflow_run
where tenant = :tenant and type = :type and priority = :priority
    and status = 'pending' and deleted_at is null and limit_key is not null

-- :claim    Lease the chosen runs.
update workflow_run
set status = 'leased', leased_by = :worker, lease_until = :until, attempt = attempt + 1, fence = fence + 1,
    updated_at = :now, rev = rev + 1,
    pause_asked_by = null  -- libraries before 0008 leave it behind when they resume a run
where id in (select value from json_each(:runs))
    and status in ('pending') and run_at <= :now and deleted_at is null
returning id, type, tenant, iif(octet_length(payload) <= :small, payload, null), fence, attempt, crashes, max_attempts,
    created_at, lease_until, timeout_at, rev,
    iif(kind = 'code' and parent_id is null and cost = 0 and budget is null and labels is null and trace is null,
        null,
        json_array(kind, parent_id, cost, budget, iif(octet_length(labels) <= :small, labels, null), trace, account,
            (select a.budget - a.spent from workflow_account as a where a.id = workflow_run.account))),
    octet_length(payload) + coalesce(octet_length(labels), 0), run_at

-- :values    Values that are too large for the claiming statement.
select payload, labels from workflow_run where id = :run

-- :held    True when this fence holds the lease; and the status of the run.
select status = 'leased' and fence = :fence and lease_until >= :now, status, kind,
    octet_length(payload) + coalesce(octet_length(labels), 0)
from workflow_run where id = :run

-- :leased
insert into workflow_event (workflow_id, event_type, data, created_at)
select value ->> 0, 'leased', value ->> 1, :now from json_each(:rows)

-- :logs
select data ->> '$.log_no' from workflow_event where workflow_id = :run and event_type = 'log'
    and json_type(data, '$.log_no') = 'integer'
order by id desc limit 1
