-- :guard
select status, kind, fence from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at is null
    and status in ('pending', 'leased', 'waiting', 'paused', 'succeeded', 'failed', 'cancelled')

-- :rewind    A paused run stays paused, and will resume to pending.
update workflow_run
set status = iif(status = 'paused', 'paused', 'pending'), resume_to = iif(status = 'paused', 'pending', null),
    leased_by = null, lease_until = null, pause_asked_by = null, attempt = 0, crashes = 0, fence = fence + 1,
    run_at = :now, result = null, error = null, last_error = null, finished_at = null, expires_at = null,
    waiting_on = null, wait_topic = null, deadline_at = null,
    timeout_at = :now + cast(round(timeout_seconds * 1000000) as integer), updated_at = :now, rev = rev + 1
where id = :run
returning status

-- :steps
select key, seq, status, child_id from workflow_step where run_id = :run order by seq

-- :mark    What goes must not be taken for something new: its number is not given again, and the item that
-- wrote it is still known by its fence and number when it is sent once more.
update workflow_run
set step_mark = max(step_mark, coalesce((select max(seq) from workflow_step where run_id = :run), 0))
where id = :run

-- :last_item    A plan's gate that was opened by no item has no number.
select fence, number from workflow_step where run_id = :run and number > 0 order by fence desc, number desc limit 1

-- :remember
update workflow_run set commit_fence = :fence, commit_no = :number, commit_answer = null
where id = :run and (commit_fence, commit_no) < (:fence, :number)

-- :forget_step
delete from workflow_step where run_id = :run and key = :key

-- :as_planned    A plan's row as it was at the start.
update workflow_step
set status = 'pending', attempts = 0, output = null, error = null, cost = 0, topic = iif(kind = 'event', topic, null),
    due_at = null, fence = 0, number = 0, started_at = null, finished_at = null, wake = null, waits = 0
where run_id = :run and key = :key

-- :owe_orphans    The children that no step names any more are cancelled after this commit.
update workflow_run set owes = owes | 4 where id = :run

-- :forget_receipt
delete from workflow_receipt where run_id = :run and step = :key
