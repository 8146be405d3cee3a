-- :guard    A cancelled run is left as it is.
select id, kind, status, fence from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at is null
    and status in ('pending', 'leased', 'waiting', 'paused', 'cancelled')

-- :cancel    What it owes then is carried out after it: its parent is to know, and its open children are cancelled too.
update workflow_run
set status = 'cancelled', fence = fence + 1, leased_by = null, lease_until = null, pause_asked_by = null,
    resume_to = null, waiting_on = null, wait_topic = null, deadline_at = null, finished_at = :now,
    expires_at = :now + cast(round(ttl_seconds * 1000000) as integer),
    owes = owes | iif(parent_step is null, 0, 1) | iif(
        :children and exists (select 1 from workflow_run as child where child.parent_id = :run and child.finished_at is null),
        2, 0
    ),
    updated_at = :now, rev = rev + 1
where id = :run
