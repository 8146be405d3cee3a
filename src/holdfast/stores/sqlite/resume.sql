-- :guard
select status, pause_asked_by, resume_to, kind, fence from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at is null
    and status in ('paused', 'leased')

-- :resume
update workflow_run set status = resume_to, resume_to = null, updated_at = :now, rev = rev + 1 where id = :run

-- :withdraw
update workflow_run set pause_asked_by = null, rev = rev + 1 where id = :run
