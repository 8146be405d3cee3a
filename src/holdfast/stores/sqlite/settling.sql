-- :run    Whose wait it is.
select status, kind, fence, deleted_at from workflow_run where id = :run

-- :available    The oldest event for everyone that this wait may take.
select inbox.seq, inbox.event_id, inbox.topic, inbox.at, octet_length(inbox.payload)
from workflow_step as step
cross join workflow_run as run on run.id = step.run_id
cross join workflow_inbox as inbox
    on inbox.tenant = run.tenant and inbox.topic = step.topic and inbox.run_id is null
    and inbox.seq > max(run.inbox_mark, step.since_mark)
where step.run_id = :run and step.key = :key and (step.due_at is null or inbox.at <= step.due_at)
    and not exists (select 1 from workflow_receipt where run_id = run.id and event_seq = inbox.seq)
order by inbox.seq limit 1

-- :available_addressed    The oldest event for this run alone.
select inbox.seq, inbox.event_id, inbox.topic, inbox.at, octet_length(inbox.payload)
from workflow_step as step
cross join workflow_run as run on run.id = step.run_id
cross join workflow_inbox as inbox
    on inbox.tenant = run.tenant and inbox.topic = step.topic and inbox.run_id = run.id
    and inbox.seq > step.since_mark
where step.run_id = :run and step.key = :key and (step.due_at is null or inbox.at <= step.due_at)
    and not exists (select 1 from workflow_receipt where run_id = run.id and event_seq = inbox.seq)
order by inbox.seq limit 1

-- :to_look_at    The open waits of a run that may be settled now, first due first; the exact look comes after. By the
-- index of open steps.
select step.seq, step.key, step.kind, step.topic, step.due_at, step.child_id
from workflow_step as step indexed by idx_workflow_step_open
cross join workflow_run as run on run.id = step.run_id
where step.run_id = :run and step.status = 'waiting' and step.finished_at is null and (
    step.topic is null or step.kind not in ('event', 'task') or step.due_at <= :now
    or exists (
        select 1 from workflow_inbox as inbox
        where inbox.tenant = run.tenant and inbox.topic = step.topic and inbox.run_id is null
            and inbox.seq > max(run.inbox_mark, step.since_mark)
    )
    or exists (
        select 1 from workflow_inbox as inbox
        where inbox.tenant = run.tenant and inbox.topic = step.topic and inbox.run_id = run.id
            and inbox.seq > step.since_mark
    )
)
order by step.due_at is null, step.due_at, step.seq

-- :owe_a_look    At the waits that a look has left.
update workflow_run set owes = owes | 8 where id = :run

-- :settle    Once: only an open wait, and under the next number. An event's payload is copied here, not through the caller.
update workflow_step
set seq = 1 + max(
        (select max(seq) from workflow_step where run_id = :run),
        (select step_mark from workflow_run where id = :run)
    ),
    status = :status, output = :before || coalesce((select payload from workflow_inbox where seq = :event), '') || :behind,
    error = :error, finished_at = :now
where run_id = :run and key = :key and status = 'waiting'

-- :settle_planned    The same in a plan, whose rows keep their numbers.
update workflow_step
set status = :status, output = :before || coalesce((select payload from workflow_inbox where seq = :event), '') || :behind,
    error = :error, finished_at = :now
where run_id = :run and key = :key and status = 'waiting'

-- :call_again    A plan's task that has waited.
update workflow_step
set status = 'pending', wake = :before || coalesce((select payload from workflow_inbox where seq = :event), '') || :behind,
    due_at = null
where run_id = :run and key = :key and status = 'waiting'

-- :receipt
insert into workflow_receipt (run_id, event_seq, step) values (:run, :event, :key)

-- :count
update workflow_inbox set woken = woken + 1 where seq = :event

-- :child    How the run ended that a step waits for.
select status, result, error, finished_at is not null from workflow_run where id = :child

-- :on_timeout    What a gate says on its own.
select on_timeout from workflow_step where run_id = :run and key = :key
