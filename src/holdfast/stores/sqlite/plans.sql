-- :insert    All rows of a plan at once; their order is their number, from 0.
insert into workflow_step (
    run_id, seq, key, kind, status, max_attempts, tenant, topic, timeout_seconds, ask, digest, on_timeout
)
select :run, step.key, step.value ->> 'name', coalesce(step.value ->> 'kind', 'task'), 'pending',
    iif(coalesce(step.value ->> 'kind', 'task') = 'task',
        coalesce(nullif(step.value ->> 'max_attempts', 0), :max_attempts), null),
    :tenant, step.value ->> 'topic', step.value ->> 'timeout_seconds', step.value ->> 'ask',
    step.value ->> 'digest', coalesce(step.value ->> 'on_timeout', 'reject')
from json_each(:steps) as step

-- :become_plan    A run that was started before its plan was published.
update workflow_run set kind = 'plan' where id = :run
returning tenant, max_attempts

-- :has_steps
select 1 from workflow_step where run_id = :run limit 1

-- :current    The first step that has not succeeded.
select $step_columns from workflow_step where run_id = :run and status <> 'succeeded' order by seq limit 1

-- :at_work    The same while a run is held: the first that is open, found by their index, however many are done.
select $step_columns from workflow_step indexed by idx_workflow_step_open
where run_id = :run and finished_at is null order by seq limit 1

-- :following
select $step_columns from workflow_step where run_id = :run and seq > :seq order by seq limit 1

-- :step
select $step_columns from workflow_step where run_id = :run and key = :key

-- :open
update workflow_step set status = 'waiting', started_at = :now, fence = :fence, due_at = :due_at
where run_id = :run and key = :key

-- :end_current    However a run ends without success: the step that it was at.
update workflow_step
set status = :status, error = iif(:failed, :error, error), attempts = iif(:failed, :attempts, attempts),
    finished_at = :now
where run_id = :run and status <> 'failed' and status <> 'cancelled'
    and seq = (select seq from workflow_step where run_id = :run and status <> 'succeeded' order by seq limit 1)
returning key

-- :cancel_steps    What is open ends with its run.
update workflow_step indexed by idx_workflow_step_open set status = 'cancelled', finished_at = :now
where run_id = :run and finished_at is null and status in ('ready', 'waiting')

-- :become    What the current row makes of a run that nobody holds. Counts begin anew, unless they are kept.
update workflow_run
set status = :status, resume_to = null, run_at = max(run_at, :run_at), waiting_on = :waiting_on,
    wait_topic = :wait_topic, deadline_at = :deadline_at, attempt = iif(:counts_stay, attempt, 0),
    crashes = iif(:counts_stay, crashes, 0), updated_at = :now, rev = rev + 1
where id = :run

-- :end
update workflow_run
set status = :status, resume_to = null, run_at = max(run_at, :run_at), waiting_on = null, wait_topic = null,
    deadline_at = null, error = :error, last_error = :last_error, attempt = iif(:counts_stay, attempt, 0), crashes = iif(:counts_stay, crashes, 0),
    finished_at = :now, expires_at = :now + cast(round(ttl_seconds * 1000000) as integer),
    owes = iif(parent_step is null, owes, owes | 1), updated_at = :now, rev = rev + 1
where id = :run

-- :row    Of one that a further step is to be added to.
select status, kind from workflow_run
where id = :run and (:tenant is null or tenant = :tenant) and deleted_at is null

-- :append
insert into workflow_step (run_id, seq, key, kind, status, max_attempts, tenant, on_timeout)
select id, 1 + max(step_mark, coalesce((select max(seq) from workflow_step where run_id = :run), 0)), :name, 'task',
    'pending', coalesce(nullif(:max_attempts, 0), max_attempts), tenant, 'reject'
from workflow_run where id = :run
on conflict (run_id, key) do nothing
returning seq, max_attempts

-- :added    The last row, if whoever added it did not hear the answer.
select seq, max_attempts from workflow_step
where run_id = :run and key = :name and kind = 'task' and status = 'pending'
    and seq = (select max(seq) from workflow_step where run_id = :run)
    and max_attempts = (select coalesce(nullif(:max_attempts, 0), max_attempts) from workflow_run where id = :run)
    and exists (
        select 1 from workflow_event
        where workflow_id = :run and event_type = 'step_added' and data ->> 'step' = :name
    )
