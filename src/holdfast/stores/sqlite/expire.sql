-- :guard    Leases are indexed by holder, so that a renewal moves few entries: walk the holders, and of each
-- only the leases that have run out.
with recursive holder (name) as (
    select min(leased_by) from workflow_run where status = 'leased'
    union all
    select (select min(leased_by) from workflow_run where status = 'leased' and leased_by > holder.name)
    from holder where holder.name is not null
)
select run.id, run.leased_by, run.crashes, run.max_crashes, run.pause_asked_by, run.kind, run.attempt
from holder
cross join workflow_run as run on run.leased_by = holder.name
where run.status = 'leased' and run.lease_until < :now
limit :limit

-- :next    When the first lease ends.
with recursive holder (name) as (
    select min(leased_by) from workflow_run where status = 'leased'
    union all
    select (select min(leased_by) from workflow_run where status = 'leased' and leased_by > holder.name)
    from holder where holder.name is not null
)
select min((
    select min(lease_until) from workflow_run where status = 'leased' and leased_by = holder.name
)) from holder where holder.name is not null

-- :requeue    Into the queue, or into the pause that was asked for.
update workflow_run
set status = :status, resume_to = :resume_to, run_at = :run_at, crashes = crashes + 1, fence = fence + 1,
    leased_by = null, lease_until = null, pause_asked_by = null, error = :error, last_error = :last_error,
    updated_at = :now, rev = rev + 1
where id = :run

-- :fail    At the crash cap.
update workflow_run
set status = 'failed', crashes = crashes + 1, fence = fence + 1, leased_by = null, lease_until = null,
    pause_asked_by = null, error = :error, last_error = :last_error, finished_at = :now,
    owes = iif(parent_step is null, owes, owes | 1),
    expires_at = :now + cast(round(ttl_seconds * 1000000) as integer), updated_at = :now, rev = rev + 1
where id = :run
