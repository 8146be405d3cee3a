-- :guard    Nobody is at a deleted run; and one that a purge has begun to remove is gone (-1).
select status from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at >= 0
    and status in ('pending', 'waiting', 'paused', 'succeeded', 'failed', 'cancelled')

-- :restore
update workflow_run set deleted_at = null, updated_at = :now, rev = rev + 1 where id = :run
