-- :guard    A paused run is left as it is.
select status from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at is null
    and status in ('pending', 'leased', 'waiting', 'paused')

-- :pause
update workflow_run set resume_to = status, status = 'paused', updated_at = :now, rev = rev + 1 where id = :run

-- :ask    The holder learns it at his next boundary; whoever asked first is named.
update workflow_run set pause_asked_by = coalesce(pause_asked_by, :by), rev = rev + 1 where id = :run
