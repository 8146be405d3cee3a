-- :step_columns    In the order of rows.step().
seq, key, kind, status, attempts, output, error, cost, topic, due_at, fence, started_at, finished_at, max_attempts,
timeout_seconds, ask, digest, child_id, wake, waits

-- :run_columns    In the order of rows.run_record(). A fast checkpoint does not write the row of the run: the trail has its
-- time. For a plan, one lookup finds number and name of the current step; after its success, the name of the last step.
id, tenant, type, status, $values, error, last_error, priority, run_at, idempotency_key, attempt,
coalesce(tried_of, max_attempts), crashes, fence, leased_by, lease_until, pause_asked_by, parent_id, limit_key, labels, cost, budget,
progress, timeout_at, expires_at, created_at,
max(updated_at, coalesce((
    select created_at from workflow_event where workflow_id = workflow_run.id order by workflow_event.id desc limit 1
), 0)),
started_at, finished_at, deleted_at,
iif(
    kind = 'plan',
    coalesce(
        (
            select json_array(seq, key) from workflow_step
            where run_id = workflow_run.id and status <> 'succeeded' order by seq limit 1
        ),
        (select json_array(null, key) from workflow_step where run_id = workflow_run.id order by seq desc limit 1)
    ),
    (
        select key from workflow_step
        where run_id = workflow_run.id and status in ('succeeded', 'failed')
        order by seq desc limit 1
    )
),
ttl_seconds, kind, parent_step, timeout_seconds, account,
(select json_array(spent, budget) from workflow_account where id = workflow_run.account),
(select origin from workflow_origin where run_id = workflow_run.id), coalesce(chain, id),
coalesce((select present from workflow_run as first where first.id = workflow_run.chain), present, id)

-- :steps_after
select $step_columns,
    octet_length(key) + coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)
    + coalesce(octet_length(ask), 0) + coalesce(octet_length(wake), 0)
from workflow_step where run_id = :run and seq > :after order by seq

-- :small_steps_after    The same without values above :largest bytes, and whether a value was left out.
select $step_columns,
    octet_length(key) + coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)
    + coalesce(octet_length(ask), 0) + coalesce(octet_length(wake), 0),
    left_out
from (
    select seq, key, kind, status, attempts, iif(octet_length(output) > :largest, null, output) as output, error, cost,
        topic, due_at, fence, started_at, finished_at, max_attempts, timeout_seconds,
        iif(octet_length(ask) > :largest, null, ask) as ask, digest, child_id,
        iif(octet_length(wake) > :largest, null, wake) as wake, waits,
        max(coalesce(octet_length(output), 0), coalesce(octet_length(ask), 0), coalesce(octet_length(wake), 0))
            > :largest as left_out
    from workflow_step where run_id = :run and seq > :after order by seq
)

-- :open_waits    First due first. By the index of open steps: a run may have ten thousand finished steps.
select $step_columns from workflow_step indexed by idx_workflow_step_open
where run_id = :run and status = 'waiting' and finished_at is null
order by due_at is null, due_at, seq

-- :settled_since    Waits that were settled while the run was leased. A child that was only started has not waited.
select $step_columns from workflow_step
where run_id = :run and seq > :known and kind in ('sleep', 'event', 'approval', 'child')
    and status in ('succeeded', 'failed') and (kind <> 'child' or waits > 0)
order by seq

-- :has_settled
select 1 from workflow_step
where run_id = :run and seq > :known and kind in ('sleep', 'event', 'approval', 'child')
    and status in ('succeeded', 'failed') and (kind <> 'child' or waits > 0)
limit 1

-- :news_bytes    The number of these waits, and their size in bytes.
select count(*), coalesce(sum(
    octet_length(key) + coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)
    + coalesce(octet_length(ask), 0) + coalesce(octet_length(wake), 0)
), 0)
from workflow_step
where run_id = :run and seq > :known and kind in ('sleep', 'event', 'approval', 'child')
    and status in ('succeeded', 'failed') and (kind <> 'child' or waits > 0)

-- :run
select $run_columns from workflow_run where id = :run and deleted_at is null

-- :run_or_deleted    Without runs that a purge has begun to remove (-1).
select $run_columns from workflow_run where id = :run and coalesce(deleted_at, 0) >= 0

-- :list
select id from workflow_run where $terms order by id desc limit ?

-- :outlines    In the order of rows.outline_record().
select id, type, status,
    coalesce((select present from workflow_run as first where first.id = workflow_run.chain), present, id),
    pause_asked_by is not null, created_at, started_at, finished_at
from workflow_run where $terms order by id desc limit ?

-- :list_whole    Each row is read once: SQLite has to read through a large value to reach the columns after it.
select $run_columns from workflow_run where $terms order by id desc limit ?
