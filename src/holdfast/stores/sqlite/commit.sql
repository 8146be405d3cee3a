-- :row    A run whose guard did not hold: was the item applied before, or what is it now?
select status, commit_fence, commit_no, commit_answer from workflow_run where id = :run

-- :stands    Whether an item of that fence wrote steps: it may have left the run row alone.
select 1 from workflow_step where run_id = :run and fence = :fence and number >= :number limit 1

-- :overtaken    Whether another holder has written since; a plan's gate that was opened meanwhile has no number.
select 1 from workflow_step where run_id = :run and fence > :fence and number > 0 limit 1

-- :step    A key, if it stands.
select status, output, cost, fence, number from workflow_step where run_id = :run and key = :key

-- :seq    The highest step number there is.
select coalesce(max(seq), 0) from workflow_step where run_id = :run

-- :highest    The highest that was ever given, to a step that is forgotten by now too.
select max(step_mark, (select coalesce(max(seq), 0) from workflow_step where run_id = workflow_run.id))
from workflow_run where id = :run

-- :put_step    A new row, or a new outcome for one that is open: it takes the next number, and its cost adds up.
insert into workflow_step (
    run_id, seq, key, kind, status, attempts, output, error, cost, tenant, topic, due_at, since_mark, fence, number,
    started_at, finished_at, ask, digest, on_timeout, child_id, waits
)
values (
    :run, :seq, :key, :kind, :status, :attempts, :output, :error, :cost,
    coalesce((select tenant from workflow_run where id = :run), 'default'), :topic, :due_at, :since_mark, :fence,
    :number, :started_at, :finished_at, :ask, :digest, :on_timeout, :child, :waits
)
on conflict (run_id, key) do update
set seq = excluded.seq, kind = excluded.kind, status = excluded.status, attempts = excluded.attempts,
    output = excluded.output, error = excluded.error, cost = cost + excluded.cost, topic = excluded.topic,
    due_at = excluded.due_at, fence = excluded.fence, number = excluded.number,
    started_at = excluded.started_at, finished_at = excluded.finished_at, ask = excluded.ask, digest = excluded.digest,
    on_timeout = excluded.on_timeout, child_id = coalesce(excluded.child_id, child_id),
    waits = waits + excluded.waits

-- :update_step    A plan's row is there since the start, and keeps its number.
update workflow_step
set status = :status, attempts = :attempts, wake = null, output = :output, error = :error, cost = cost + :cost,
    fence = :fence, number = :number, started_at = :started_at, finished_at = :finished_at, waits = waits + :waits,
    due_at = iif(:waits, :due_at, due_at), topic = iif(:waits, :topic, topic)
where run_id = :run and key = :key

-- :spend    A try of a plan's task that failed: why it was called stays, what it cost is added.
update workflow_step set cost = cost + :cost where run_id = :run and key = :key

-- :lead    A row of the trail learns where it led: the last `waiting` says that the run waits.
update workflow_event set data = :data where id = :id

-- :stay    Held still.
update workflow_run
set attempt = :attempt, crashes = :crashes, lease_until = :lease_until, cost = cost + :cost,
    progress = coalesce(:progress, progress), error = iif(:retried, :error, error),
    last_error = iif(:retried, :last_error, last_error), started_fence = :started_fence,
    started_at = coalesce(started_at, :started_at), commit_fence = :commit_fence, commit_no = :commit_no,
    commit_answer = :commit_answer, updated_at = :now, rev = rev + 1
where id = :run

-- :leave    Given back: to the queue, to a wait, or into the pause that was asked for.
update workflow_run
set status = :status, resume_to = :resume_to, run_at = coalesce(:run_at, run_at), leased_by = null,
    lease_until = null, pause_asked_by = null, waiting_on = :waiting_on, wait_topic = :wait_topic,
    deadline_at = :deadline_at, attempt = :attempt, crashes = :crashes, cost = cost + :cost,
    progress = coalesce(:progress, progress), error = iif(:retried, :error, error),
    last_error = iif(:retried, :last_error, last_error), started_fence = :started_fence,
    started_at = coalesce(started_at, :started_at), commit_fence = :commit_fence, commit_no = :commit_no,
    commit_answer = :commit_answer, updated_at = :now, rev = rev + 1
where id = :run

-- :finish    complete, fail.
update workflow_run
set status = :status, run_at = coalesce(:run_at, run_at), result = :result, error = :error,
    last_error = :last_error, finished_at = :now,
    expires_at = :now + cast(round(ttl_seconds * 1000000) as integer), leased_by = null, lease_until = null,
    pause_asked_by = null, attempt = :attempt, crashes = :crashes, cost = cost + :cost,
    owes = iif(parent_step is null, owes, owes | 1), progress = coalesce(:progress, progress),
    started_fence = :started_fence,
    started_at = coalesce(started_at, :started_at), commit_fence = :commit_fence, commit_no = :commit_no,
    commit_answer = :commit_answer, updated_at = :now, rev = rev + 1
where id = :run
