-- The common writes of holders, many at once. Each statement carries THE guard of hold.sql for every item on its
-- own; an item that it passes over is answered the long way, and so are the items of plans. Items come as one JSON
-- array of arrays.

-- :begin    The first checkpoint of an execution: `started` is due, once a fence.
update workflow_run
set started_fence = workflow_run.fence, started_at = coalesce(workflow_run.started_at, item.begun_at),
    updated_at = :now, rev = rev + 1
from (select value ->> 0 as run, value ->> 1 as fence, value ->> 2 as begun_at from json_each(:items)) as item
where id = item.run and status = 'leased' and workflow_run.fence = item.fence and lease_until >= :now
    and started_fence <> item.fence and kind = 'code'
returning id

-- :checkpoint    One outcome of a key that is new; the run row is left alone, so nothing may have to change there.
insert into workflow_step (
    run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
)
select run.id, max(run.step_mark, coalesce((select max(seq) from workflow_step where run_id = run.id), 0)) + 1,
    item.value ->> 4, item.value ->> 5, 'succeeded', item.value ->> 6, item.value ->> 7, run.fence,
    item.value ->> 2, item.value ->> 8, :now
from json_each(:items) as item cross join workflow_run as run on run.id = item.value ->> 0
where run.status = 'leased' and run.fence = item.value ->> 1 and run.lease_until >= :now
    and run.attempt = 1 and run.crashes = 0 and run.pause_asked_by is null and run.kind = 'code'
    and (run.lease_until - :now) * 3 >= item.value ->> 3
    and not (run.commit_fence = run.fence and run.commit_no >= item.value ->> 2)
on conflict (run_id, key) do nothing
returning run_id

-- :whole    Completes that carry all the steps of their runs: none stands, so their numbers are known.
select run.id from json_each(:items) as item cross join workflow_run as run on run.id = item.value ->> 0
where run.status = 'leased' and run.fence = item.value ->> 1 and run.lease_until >= :now
    and run.attempt = 1 and run.crashes = 0 and run.step_mark = 0 and run.kind = 'code'
    and not (run.commit_fence = run.fence and run.commit_no >= item.value ->> 2)
    and not exists (select 1 from workflow_step where run_id = run.id)

-- :steps    Of those.
insert into workflow_step (
    run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
)
select value ->> 0, value ->> 3, value ->> 4, value ->> 5, 'succeeded', value ->> 6, value ->> 7, value ->> 1,
    value ->> 2, value ->> 8, :now
from json_each(:items)

-- :started    Of those that complete: `started`, where no renewal has written it for this fence.
insert into workflow_event (workflow_id, event_type, data, created_at)
select run.id, 'started', json_object('at', item.value ->> 4), :now
from json_each(:items) as item cross join workflow_run as run on run.id = item.value ->> 0
where run.status = 'leased' and run.fence = item.value ->> 1 and run.lease_until >= :now
    and not (run.commit_fence = run.fence and run.commit_no >= item.value ->> 2)
    and item.value ->> 4 is not null and run.started_fence <> run.fence and run.kind = 'code'

-- :complete    Nothing rides along; a pause that was asked for loses.
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

-- :cancel_steps    What is open ends with its run.
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
