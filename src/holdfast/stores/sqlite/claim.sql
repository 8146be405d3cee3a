-- Claims walk the priorities of one type (and tenant) loosely: from one to the next by the index, and
-- in each only as far as `run_at` is due. Later, sleeping, finished and foreign runs are never touched.

-- :next_priority
select priority from workflow_run
where type = :type and priority > :priority and status = 'pending' and deleted_at is null
order by priority limit 1

-- :due
select priority, run_at, id, crashes from workflow_run
where type = :type and priority = :priority and run_at <= :now and status = 'pending' and deleted_at is null
order by run_at, id

-- :tenant_next_priority
select priority from workflow_run
where tenant = :tenant and type = :type and priority > :priority and status = 'pending' and deleted_at is null
order by priority limit 1

-- :tenant_due
select priority, run_at, id, crashes from workflow_run
where tenant = :tenant and type = :type and priority = :priority and run_at <= :now
    and status = 'pending' and deleted_at is null
order by run_at, id

-- :next_run_at
select min(run_at) from workflow_run
where type = :type and priority = :priority and status = 'pending' and deleted_at is null

-- :tenant_next_run_at
select min(run_at) from workflow_run
where tenant = :tenant and type = :type and priority = :priority and status = 'pending' and deleted_at is null

-- :claim    All that were chosen.
update workflow_run
set status = 'leased', leased_by = :worker, lease_until = :until, attempt = attempt + 1, fence = fence + 1,
    updated_at = :now, rev = rev + 1
where id in (select value from json_each(:runs))
    and status in ('pending') and run_at <= :now and deleted_at is null
returning id, type, tenant, payload, fence, attempt, crashes, max_attempts, created_at, lease_until, timeout_at, rev

-- :leased
insert into workflow_event (workflow_id, event_type, data, created_at)
select value ->> 0, 'leased', value ->> 1, :now from json_each(:rows)

-- :logs
select coalesce(max(data ->> '$.log_no'), 0) from workflow_event where workflow_id = :run and event_type = 'log'
    and json_type(data, '$.log_no') = 'integer'
