-- :guard    A cancelled run is left as it is.
select status from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at is null
    and status in ('pending', 'leased', 'waiting', 'paused', 'cancelled')

-- :cancel
update workflow_run
set status = 'cancelled', fence = fence + 1, leased_by = null, lease_until = null, pause_asked_by = null,
    resume_to = null, waiting_on = null, wait_topic = null, deadline_at = null, finished_at = :now,
    expires_at = :now + cast(round(ttl_seconds * 1000000) as integer), updated_at = :now, rev = rev + 1
where id = :run
