-- :strays    All runs that are leased to this worker.
select id, fence from workflow_run where status = 'leased' and leased_by = :worker order by id

-- :leases    A run that a purge has begun to remove (-1) is not leased.
select id, status, fence, lease_until, pause_asked_by from workflow_run where id in (select value from json_each(:runs))
