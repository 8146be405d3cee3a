-- :guard
select status, error, kind, fence from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at is null
    and status in ('failed')
