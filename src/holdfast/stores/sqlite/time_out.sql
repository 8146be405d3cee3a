-- :guard
select id, timeout_seconds, status, kind, attempt from workflow_run
where timeout_at is not null and finished_at is null and timeout_at <= :now
    and status in ('pending', 'leased', 'waiting', 'paused')
order by timeout_at limit :limit

-- :next
select min(timeout_at) from workflow_run where timeout_at is not null and finished_at is null

-- :fail
update workflow_run
set status = 'failed', fence = fence + 1, leased_by = null, lease_until = null, pause_asked_by = null,
    resume_to = null, waiting_on = null, wait_topic = null, deadline_at = null, error = :error,
    last_error = :last_error, finished_at = :now, owes = iif(parent_step is null, owes, owes | 1),
    expires_at = :now + cast(round(ttl_seconds * 1000000) as integer), updated_at = :now, rev = rev + 1
where id = :run
