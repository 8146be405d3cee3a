-- Fast path for the common writes of leaseholders, many at once. Each statement checks the guard of holders
-- (machine/rows.py) for every item. An item that fails the check goes through the machine. Items are one JSON array of
-- arrays.

-- :begin    The first checkpoint of an execution: `started` is written once for each fence.
update workflow_run
set started_fence = workflow_run.fence, started_at = coalesce(workflow_run.started_at, item.begun_at),
    updated_at = :now, rev = rev + 1
from (select value ->> 0 as run, value ->> 1 as fence, value ->> 2 as begun_at from json_each(:items)) as item
where id = item.run and status = 'leased' and workflow_run.fence = item.fence and lease_until >= :now
    and started_fence <> item.fence and kind = 'code'
returning id

-- :checkpoint    One outcome of a new key. It does not write the row of the run, so nothing in that row may have to change.
insert into workflow_step (
    run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
)
select run.id, max(run.step_mark, coalesce((select max(seq) from workflow_step where run_id = run.id), 0)) + 1,
    item.value ->> 4, item.value ->> 5, 'succeeded', item.value ->> 6, item.value ->> 7, run.fence,
    item.value ->> 2, item.value ->> 8, :now
from json_each(:items) as item cross join workflow_run as run on run.id = item.value ->> 0
where run.status = 'leased' and run.fence = item.value ->> 1 and run.lease_until >= :now
    and run.attempt = 1 and run.crashes = 0 and run.survived = 0 and run.pause_asked_by is null and run.kind = 'code'
    and (run.lease_until - :now) * 3 >= item.value ->> 3
    and not (run.commit_fence = run.fence and run.commit_no >= item.value ->> 2)
on conflict (run_id, key) do nothing
returning run_id

-- :whole    Completes that bring all steps of their runs: no step is recorded yet, so the numbers are known.
select run.id from json_each(:items) as item cross join workflow_run as run on run.id = item.value ->> 0
where run.status = 'leased' and run.fence = item.value ->> 1 and run.lease_until >= :now
    and run.attempt = 1 and run.crashes = 0 and run.survived = 0 and run.step_mark = 0 and run.kind = 'code'
    and not (run.commit_fence = run.fence and run.commit_no >= item.value ->> 2)
    and not exists (select 1 from workflow_step where run_id = run.id)

-- :steps    The steps of these completes.
insert into workflow_step (
    run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
)
select value ->> 0, value ->> 3, value ->> 4, value ->> 5, 'succeeded', value ->> 6, value ->> 7, value ->> 1,
    value ->> 2, value ->> 8, :now
from json_each(:items)

-- :started    `started` for completes, unless a renewal has written it for this fence.
insert into workflow_event (workflow_id, event_type, data, created_at)
select run.id, 'started', json_object('at', item.value ->> 4), :now
from json_each(:items) as item cross join workflow_run as run on run.id = item.value ->> 0
where run.status = 'leased' and run.fence = item.value ->> 1 and run.lease_until >= :now
    and not (run.commit_fence = run.fence and run.commit_no >= item.value ->> 2)
    and item.value ->> 4 is not null and run.started_fence <> run.fence and run.kind = 'code'

-- :complete    Nothing but log rows comes with it. A requested pause is dropped.
update workflow_run
set status = 'succeeded', result = item.result, error = null, last_error = null, finished_at = :now,
    expires_at = :now + cast(round(ttl_seconds * 1000000) as integer), leased_by = null, lease_until = null,
    pause_asked_by = null, owes = iif(parent_step is null, owes, owes | 1),
    started_fence = iif(item.begun_at is null, started_fence, workflow_run.fence),
    started_at = coalesce(workflow_run.started_at, item.begun_at), commit_fence = workflow_run.fence,
    commit_no = item.number, commit_answer = :answer, updated_at = :now, rev = rev + 1
from (
    select value ->> 0 as run, value ->> 1 as fence, value ->> 2 as number, value ->> 3 as result,
        value ->> 4 as begun_at
    from json_each(:items)
) as item
where id = item.run and status = 'leased' and workflow_run.fence = item.fence and lease_until >= :now
    and not (commit_fence = workflow_run.fence and commit_no >= item.number) and kind = 'code'
returning id

-- :advance    Finished tasks of plans, and the next row of each plan: a task that has not begun, which the holder executes
-- next, or none. Nobody else writes between this read and the statements that follow.
select item.key, next.seq, next.key, next.max_attempts, run.started_fence <> run.fence,
    (run.lease_until - :now) * 3 < item.value ->> 3
from json_each(:items) as item cross join workflow_run as run on run.id = item.value ->> 0
cross join workflow_step as step on step.run_id = run.id and step.seq = (
    select seq from workflow_step indexed by idx_workflow_step_open
    where run_id = run.id and finished_at is null order by seq limit 1
)
left join workflow_step as next on next.run_id = run.id and next.seq = (
    select seq from workflow_step where run_id = run.id and seq > step.seq order by seq limit 1
)
where run.status = 'leased' and run.fence = item.value ->> 1 and run.lease_until >= :now
    and run.pause_asked_by is null and run.kind = 'plan'
    and not (run.commit_fence = run.fence and run.commit_no >= item.value ->> 2)
    and step.key = item.value ->> 4 and step.kind = 'task' and step.status = 'pending'
    and not (step.fence = run.fence and step.number >= item.value ->> 2)
    and (next.seq is null or (
        item.value ->> 5 and next.kind = 'task' and next.status = 'pending' and next.finished_at is null
        and next.started_at is null and next.attempts = 0 and next.fence = 0 and next.cost = 0 and next.waits = 0
        and next.output is null and next.error is null and next.wake is null and next.topic is null
        and next.due_at is null and next.timeout_seconds is null and next.ask is null and next.digest is null
        and next.child_id is null
    ))

-- :record_task    The row of a plan exists since the start, and keeps its number.
update workflow_step
set status = 'succeeded', attempts = item.attempts, wake = null, output = item.output, error = null, fence = item.fence,
    number = item.number, started_at = item.started_at, finished_at = :now
from (
    select value ->> 0 as run, value ->> 1 as fence, value ->> 2 as number, value ->> 4 as name,
        value ->> 6 as attempts, value ->> 7 as output, value ->> 8 as started_at
    from json_each(:items)
) as item
where run_id = item.run and key = item.name

-- :go_on    The run stays leased. The lease is renewed by a separate statement when it is due, because it is in an index.
update workflow_run
set attempt = 1, crashes = 0, survived = 0, started_fence = iif(item.begun_at is null, started_fence, fence),
    started_at = coalesce(workflow_run.started_at, item.begun_at), commit_fence = fence, commit_no = item.number,
    commit_answer = '{"answer":"applied","status":"leased","settled":[' || json_object(
        'seq', item.seq, 'key', item.name, 'kind', 'task', 'status', 'pending', 'max_attempts', item.max_attempts
    ) || ']}', updated_at = :now, rev = rev + 1
from (
    select value ->> 0 as run, value ->> 1 as number, value ->> 2 as begun_at, value ->> 3 as seq, value ->> 4 as name,
        value ->> 5 as max_attempts
    from json_each(:items)
) as item
where id = item.run

-- :renew
update workflow_run set lease_until = :now + item.lasts
from (select value ->> 0 as run, value ->> 1 as lasts from json_each(:items)) as item
where id = item.run

-- :end_plan
update workflow_run
set status = 'succeeded', result = item.result, error = null, last_error = null, finished_at = :now,
    expires_at = :now + cast(round(ttl_seconds * 1000000) as integer), leased_by = null, lease_until = null,
    attempt = 1, crashes = 0, survived = 0, owes = iif(parent_step is null, owes, owes | 1),
    started_fence = iif(item.begun_at is null, started_fence, fence),
    started_at = coalesce(workflow_run.started_at, item.begun_at), commit_fence = fence, commit_no = item.number,
    commit_answer = :answer, updated_at = :now, rev = rev + 1
from (
    select value ->> 0 as run, value ->> 1 as number, value ->> 2 as begun_at, value ->> 3 as result
    from json_each(:items)
) as item
where id = item.run

-- :cancel_steps    Open steps end with their run.
update workflow_step indexed by idx_workflow_step_open set status = 'cancelled', finished_at = :now
where run_id in (select value from json_each(:runs)) and finished_at is null and status in ('ready', 'waiting')

-- :step_succeeded
insert into workflow_event (workflow_id, event_type, data, created_at)
select value ->> 0, 'step_succeeded', json_object('step', value ->> 4), :now from json_each(:items)

-- :succeeded
insert into workflow_event (workflow_id, event_type, created_at)
select value, 'succeeded', :now from json_each(:runs)

-- :trail
insert into workflow_event (workflow_id, event_type, data, created_at)
select value ->> 0, value ->> 1, value ->> 2, :now from json_each(:rows)
