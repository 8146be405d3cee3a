-- Whole runs and events, out of the file and into it.

-- :ids    A run that a purge has begun to remove is gone.
select id from workflow_run where id > :after and deleted_at is not -1 order by id limit :limit

-- :row    In the order of FIELDS in transfer.py; then the number of changes, the highest step number, and the id.
select tenant, type, run_at, created_at, updated_at, kind, status, resume_to, pause_asked_by, payload, digest,
    idempotency_key, priority, attempt, max_attempts, crashes, max_crashes, survived, tried_of, fence, step_mark,
    waiting_on, wait_topic, deadline_at, owes, cost, budget, account, error, last_error, progress, result, started_at,
    finished_at, deleted_at, timeout_seconds, timeout_at, ttl_seconds, expires_at, inbox_mark, parent_id, parent_step,
    limit_key, labels, trace, api_key, chain,
    (select origin from workflow_origin where run_id = workflow_run.id),
    (select present = workflow_run.id from workflow_run as first where first.id = workflow_run.chain),
    (select budget || ' ' || spent from workflow_account where id = workflow_run.id), present,
    rev, (select max(seq) from workflow_step where run_id = workflow_run.id), workflow_run.id
from $runs where deleted_at is not -1

-- :one_run
(select :run as asked_id) as asked cross join workflow_run on workflow_run.id = asked.asked_id

-- :many_runs
(select key as place, value as asked_id from json_each(:runs)) as asked cross join workflow_run on workflow_run.id = asked.asked_id

-- :sizes    About how many bytes each run has, in the order of the runs.
select workflow_run.id, 500 + octet_length(payload) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
    + coalesce(octet_length(progress), 0) + (
        select coalesce(sum(
            200 + coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(ask), 0)
            + coalesce(octet_length(wake), 0)
        ), 0) from workflow_step where run_id = workflow_run.id
    )
    + (select coalesce(sum(100 + octet_length(data)), 0) from workflow_event where workflow_id = workflow_run.id)
    + (select coalesce(sum(200 + octet_length(payload)), 0) from workflow_outbox where run_id = workflow_run.id)
from $runs order by asked.place

-- :took_of_many
select link, step, event_seq from (select key as place, value as asked_id from json_each(:runs)) as asked cross join workflow_receipt on link = asked.asked_id
union all
select run_id, step, event_seq from (select key as place, value as asked_id from json_each(:runs)) as asked cross join workflow_receipt on run_id = asked.asked_id
where link is null

-- :steps_of_many
select run_id, $step_columns from (select key as place, value as asked_id from json_each(:runs)) as asked cross join workflow_step on run_id = asked.asked_id

-- :notes_of_many
select workflow_id, workflow_event.id, event_type, created_at, data
from (select key as place, value as asked_id from json_each(:runs)) as asked cross join workflow_event on workflow_id = asked.asked_id

-- :messages_of_many
select run_id, seq, workflow_outbox.id, sink, created_at, next_at, step, key, payload, status, attempts,
    fence, last_error, tried_at, sent_at
from (select key as place, value as asked_id from json_each(:runs)) as asked cross join workflow_outbox on run_id = asked.asked_id

-- :took    Events that steps of a run have taken. The receipts of a first run name no link.
select step, event_seq from workflow_receipt where link = :run
union all
select step, event_seq from workflow_receipt where run_id = :run and link is null
order by event_seq

-- :settled
select $step_columns from workflow_step
where run_id = :run and seq > :after and (status = 'succeeded' or status = 'failed' or status = 'cancelled') order by seq

-- :unsettled
select $step_columns from workflow_step
where run_id = :run and status <> 'succeeded' and status <> 'failed' and status <> 'cancelled' order by seq

-- :notes
select id, event_type, created_at, data from workflow_event where workflow_id = :run and id > :after order by id

-- :messages
select id, sink, created_at, next_at, step, key, payload, status, attempts, fence, last_error, tried_at, sent_at
from workflow_outbox where run_id = :run order by seq

-- :events
select seq, event_id, tenant, topic, at, coalesce(keep_until, at + :keep), payload, run_id, delivered, woken
from workflow_inbox where seq > :after and (:addressed or run_id is null) order by seq limit :limit

-- :events_of
select seq, event_id, tenant, topic, at, coalesce(keep_until, at + :keep), payload, run_id, delivered, woken
from workflow_inbox where run_id = :chain and seq > :after order by seq limit :limit

-- :record    An event that is addressed to a run lives as long as the run, when that is there.
insert into workflow_inbox (tenant, topic, event_id, run_id, payload, at, keep_until, delivered, woken)
values (:tenant, :topic, :id, :chain, :payload, :at, :keep_until, :delivered, :woken)
on conflict (tenant, event_id) do nothing returning seq

-- :known_event
select seq from workflow_inbox where tenant = :tenant and event_id = :id

-- :last_note    Of one of these types.
select event_type, data from workflow_event
where workflow_id = :run and event_type in (select value from json_each(:types)) order by id desc limit 1

-- :pending
select seq, id, tenant, sink, key from workflow_outbox where run_id = :run and status = 'pending' order by seq

-- :hold
update workflow_outbox set fence = fence + 1 where seq = :seq

-- :free
update workflow_outbox set last_error = null where id = :id and run_id = :run and status = 'dead'

-- :last_number
select seq from sqlite_sequence where name = 'workflow_event'

-- :raise_number
update sqlite_sequence set seq = :number where name = 'workflow_event'

-- :first_number
insert into sqlite_sequence (name, seq) values ('workflow_event', :number)

-- :has_rest    Of these runs those that have rows; of an unknown run they are left from an import that was not finished.
select value from json_each(:runs)
where exists (select 1 from workflow_step where run_id = value)
    or exists (select 1 from workflow_event where workflow_id = value)

-- :forget_steps
delete from workflow_step where run_id = :run

-- :forget_notes
delete from workflow_event where workflow_id = :run

-- :insert
insert into workflow_run (
    tenant, type, run_at, created_at, updated_at, kind, status, resume_to, pause_asked_by, payload, digest,
    idempotency_key, priority, attempt, max_attempts, crashes, max_crashes, survived, tried_of, fence, step_mark,
    waiting_on, wait_topic, deadline_at, owes, cost, budget, account, error, last_error, progress, result, started_at,
    finished_at, deleted_at, timeout_seconds, timeout_at, ttl_seconds, expires_at, inbox_mark, parent_id, parent_step,
    limit_key, labels, trace, api_key, chain, id, rev
)
values (
    :tenant, :type, :run_at, :created_at, :updated_at, :kind, :status, :resume_to, :pause_asked_by, :payload, :digest,
    :key, :priority, :attempt, :max_attempts, :crashes, :max_crashes, :survived, :tried_of, :fence, :step_mark,
    :waiting_on, :wait_topic, :deadline_at, :owes, :cost, :budget, :account, :error, :last_error, :progress, :result,
    :started_at, :finished_at, :deleted_at, :timeout_seconds, :timeout_at, :ttl_seconds, :expires_at, :inbox_mark,
    :parent_id, :parent_step, :limit_key, :labels, :trace, :api_key, :chain, :id, 1
)

-- :not_happened    What the trigger has counted is taken back: a run that comes is not started, one that leaves not cancelled.
update workflow_count_change set number = number - :number
where slot = :slot and tenant = :tenant and type = :type and from_status = :before and to_status = :status and what = :what

-- :nothing_happened
delete from workflow_count_change
where slot = :slot and tenant = :tenant and type = :type and from_status = :before and to_status = :status and what = :what
    and number = 0

-- :counted    Runs change their status, and nothing has happened to them.
insert into workflow_count_change values (:slot, :tenant, :type, :before, :status, '', :number)
on conflict do update set number = number + excluded.number

-- :note
insert into workflow_event (workflow_id, event_type, data, created_at) values (:run, :type, :data, :at)

-- :receipt
insert or ignore into workflow_receipt (run_id, event_seq, step, link) values (:chain, :event, :step, :link)

-- :put_message
insert into workflow_outbox (
    run_id, tenant, id, sink, created_at, next_at, step, key, payload, status, attempts, fence, last_error, tried_at,
    sent_at, behind
)
values (
    :run, :tenant, :id, :sink, :created_at, :next_at, :step, :key, :payload, :status, :attempts, :fence, :last_error,
    :tried_at, :sent_at,
    :status = 'pending' and exists (
        select 1 from workflow_outbox as other
        where other.status = 'pending' and other.key is not null
            and other.tenant = :tenant and other.sink = :sink and other.key = :key
    )
)
on conflict (id) do nothing
