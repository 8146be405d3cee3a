-- :guard    Whatever it is at. One that is deleted already is left as it is.
select status, pause_asked_by from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at is null
    and status in ('pending', 'leased', 'waiting', 'paused', 'succeeded', 'failed', 'cancelled')

-- :hide
update workflow_run set deleted_at = :now, updated_at = :now, rev = rev + 1 where id = :run

-- :fence_off    Hidden, and given back as if by its holder: a pause that was asked for is kept.
update workflow_run
set deleted_at = :now, status = iif(pause_asked_by is null, 'pending', 'paused'),
    resume_to = iif(pause_asked_by is null, null, 'pending'), leased_by = null, lease_until = null,
    pause_asked_by = null, run_at = :now, fence = fence + 1, attempt = max(0, attempt - 1), updated_at = :now,
    rev = rev + 1
where id = :run
