-- :renew    Guarded like every write of a holder.
update workflow_run
set lease_until = :lease_until, progress = coalesce(:progress, progress),
    started_at = coalesce(started_at, :started_at),
    started_fence = iif(:started_at is null, started_fence, fence), rev = rev + 1
where id = :run and status = 'leased' and fence = :fence and lease_until >= :now

-- :held    What the holder must know.
select pause_asked_by, started_fence from workflow_run
where id = :run and status = 'leased' and fence = :fence and lease_until >= :now

-- :status
select status from workflow_run where id = :run

-- :strays    Everything that is leased to this worker.
select id, fence from workflow_run where status = 'leased' and leased_by = :worker order by id
