-- Reads for the machine, and a few writes. No statement here decides what a move does: Python code in machine/ does.

-- :run_columns    In the order of RunRow, without values that are only written. The last is the highest step number.
id, tenant, run_at, kind, status, resume_to, attempt, crashes, survived, tried_of, fence, leased_by, lease_until,
pause_asked_by, started_fence, started_at, commit_fence, commit_no, commit_answer, step_mark, waiting_on, wait_topic, deadline_at, owes,
cost, error, last_error, timeout_at, expires_at, finished_at, priority, budget, deleted_at, updated_at, type, max_attempts, max_crashes,
inbox_mark, parent_id, parent_step, timeout_seconds, ttl_seconds, chain, present, account,
(select max(seq) from workflow_step where run_id = workflow_run.id)

-- :run
select $run_columns from workflow_run where id = :run

-- :runs
select $run_columns from workflow_run where id in (select value from json_each(:runs))

-- :keep_trace    Apart from other columns, which every commit reads: only programs that record traces write it again.
update workflow_run set trace = :trace where id = :run

-- :account
select budget, spent from workflow_account where id = :id

-- :keep_account
insert into workflow_account (id, budget, spent) values (:id, :budget, :spent)
on conflict (id) do update set budget = excluded.budget, spent = excluded.spent

-- :open_runs    By the index of open runs.
select count(*) from (
    select 1 from workflow_run where api_key = :api_key and finished_at is null limit :most
)

-- :stopped_members
select $run_columns from workflow_run
where account = :account and status = 'paused' and pause_asked_by = :by and deleted_at is null order by id limit :limit

-- :step_columns    In the order of StepRow.
seq, key, kind, status, attempts, output, error, cost, topic, due_at, fence, number, started_at, finished_at,
max_attempts, timeout_seconds, ask, digest, child_id, wake, waits, since_mark, on_timeout

-- :step
select $step_columns from workflow_step where run_id = :run and key = :key

-- :steps    Steps of several runs, one key each or several.
select step.run_id, $columns_of_step from json_each(:pairs) as pair
cross join workflow_step as step on step.run_id = pair.value ->> 0 and step.key = pair.value ->> 1

-- :current    The first step, by number, that has not succeeded.
select $step_columns from workflow_step where run_id = :run and status <> 'succeeded' order by seq limit 1

-- :at_work    The same while a run is leased: the first open step, by the index of open steps.
select $step_columns from workflow_step indexed by idx_workflow_step_open
where run_id = :run and finished_at is null order by seq limit 1

-- :after
select $step_columns from workflow_step where run_id = :run and seq > :seq order by seq limit 1

-- :open    By the index of open steps: a run may have ten thousand finished steps.
select $step_columns from workflow_step indexed by idx_workflow_step_open
where run_id = :run and finished_at is null and status in ('ready', 'waiting')

-- :gates    Gates that have been opened.
select $step_columns from workflow_step
where run_id = :run and kind = 'approval' and status <> 'pending' order by seq

-- :outline    All steps, without their values.
select seq, key, kind, status, attempts, null, null, cost, topic, due_at, fence, number, started_at, finished_at,
    max_attempts, timeout_seconds, null, digest, child_id, null, waits, since_mark, on_timeout
from workflow_step where run_id = :run order by seq

-- :to_look_at    Open waits that may have an event to take. An exact check follows.
select step.key from workflow_step as step indexed by idx_workflow_step_open
where step.run_id = :run and step.status = 'waiting' and step.finished_at is null and step.topic is not null and (
    exists (
        select 1 from workflow_inbox as inbox
        where inbox.tenant = :tenant and inbox.topic = step.topic and inbox.run_id is null
            and inbox.seq > max(:mark, step.since_mark)
    )
    or exists (
        select 1 from workflow_inbox as inbox
        where inbox.tenant = :tenant and inbox.topic = step.topic and inbox.run_id = :chain
            and inbox.seq > step.since_mark
    )
)

-- :last_item    The fence and number of the last item. A gate of a plan that no item opened has no number.
select fence, number from workflow_step where run_id = :run and number > 0 order by fence desc, number desc limit 1

-- :wrote    A row when an item of that fence wrote steps. The item may not have changed the row of the run.
select 1 from workflow_step where run_id = :run and fence = :fence and number >= :number limit 1

-- :overtaken    A row when a later holder has written. A gate of a plan that was opened meanwhile has no number.
select 1 from workflow_step where run_id = :run and fence > :fence and number > 0 limit 1

-- :available    The oldest event that a wait may take: an event for everyone, or one addressed to its chain.
select seq, event_id, topic, at, octet_length(payload) from workflow_inbox where seq = (
    select min(seq) from (
        select (
            select min(seq) from workflow_inbox as inbox
            where tenant = :tenant and topic = :topic and run_id is null and seq > :mark
                and (:due_at is null or at <= :due_at)
                and not exists (select 1 from workflow_receipt where run_id = :chain and event_seq = inbox.seq)
        ) as seq
        union all
        select (
            select min(seq) from workflow_inbox as inbox
            where tenant = :tenant and topic = :topic and run_id = :chain and seq > :since
                and (:due_at is null or at <= :due_at)
                and not exists (select 1 from workflow_receipt where run_id = :chain and event_seq = inbox.seq)
        )
    )
)

-- :takes    The waits, out of many, whose oldest event for everyone is this event, and whose chain has no event
-- addressed to it.
select step.run_id, step.key from json_each(:pairs) as pair
cross join workflow_step as step on step.run_id = pair.value ->> 0 and step.key = pair.value ->> 1
cross join workflow_run as run on run.id = step.run_id
where not exists (
        select 1 from workflow_inbox as other
        where other.tenant = run.tenant and other.topic = step.topic and other.run_id = coalesce(run.chain, run.id)
    )
    and (
        select seq from workflow_inbox as inbox
        where inbox.tenant = run.tenant and inbox.topic = step.topic and inbox.run_id is null
            and inbox.seq > max(run.inbox_mark, step.since_mark, iif(run.chain is null, 0, coalesce((
                select passed from workflow_chain_topic where chain = run.chain and topic = step.topic
            ), 0)))
            and (step.due_at is null or inbox.at <= step.due_at)
            and not exists (
                select 1 from workflow_receipt where run_id = coalesce(run.chain, run.id) and event_seq = inbox.seq
            )
        order by seq limit 1
    ) = :event

-- :event
select seq, event_id, topic, at, octet_length(payload) from workflow_inbox where seq = :seq

-- :receipt
insert into workflow_receipt (run_id, event_seq, step, link) values (:chain, :event, :key, :link)

-- :forget_receipts
delete from workflow_receipt where run_id = :run and step = :key and link is null

-- :forget_receipts_of_link
delete from workflow_receipt where link is not null and link = :run and step = :key

-- :passed    The watermark of a chain and a topic.
select passed from workflow_chain_topic where chain = :chain and topic = :topic

-- :topics_taken    Topics of the events that a run has taken, the busiest first.
select inbox.topic from workflow_receipt as receipt
cross join workflow_inbox as inbox on inbox.seq = receipt.event_seq
where receipt.run_id = :run and receipt.link is null
group by inbox.topic order by count(*) desc limit :most

-- :topics_taken_by_link    The same for a later run of a chain.
select inbox.topic from workflow_receipt as receipt
cross join workflow_inbox as inbox on inbox.seq = receipt.event_seq
where receipt.link is not null and receipt.link = :run
group by inbox.topic order by count(*) desc limit :most

-- :first_left    The first event of a topic that a chain has not taken; else the number after the newest event.
select coalesce(min(seq), 1 + (select coalesce(max(seq), 0) from workflow_inbox)) from (
    select (
        select min(seq) from workflow_inbox as inbox
        where tenant = :tenant and topic = :topic and run_id is null and seq > max(:mark, :passed)
            and not exists (select 1 from workflow_receipt where run_id = :chain and event_seq = inbox.seq)
    ) as seq
    union all
    select (
        select min(seq) from workflow_inbox as inbox
        where tenant = :tenant and topic = :topic and run_id = :chain and seq > :passed
            and not exists (select 1 from workflow_receipt where run_id = :chain and event_seq = inbox.seq)
    )
)

-- :taken_between    A row when at least :many events lie between: then a watermark is worth while.
select 1 from (
    select seq from workflow_inbox
    where tenant = :tenant and topic = :topic and run_id is null and seq > max(:mark, :passed) and seq < :left
    union all
    select seq from workflow_inbox
    where tenant = :tenant and topic = :topic and run_id = :chain and seq > :passed and seq < :left
) limit 1 offset :many - 1

-- :let_go    Events addressed to the chain are kept without end. Those that a later run has taken for good get an end.
update workflow_inbox set keep_until = at + :keep
where run_id = :chain and keep_until is null
    and seq in (select event_seq from workflow_receipt where link is not null and link = :run)

-- :pass
insert or replace into workflow_chain_topic (chain, topic, passed) values (:chain, :topic, :passed)

-- :go_on_as
update workflow_run set present = :next, rev = rev + 1 where id = :first

-- :links    Runs of a chain after its first one that are not deleted.
select $run_columns from workflow_run where chain = :chain and deleted_at is null order by id limit :limit

-- :deleted_links    Deleted runs of a chain, without those that a purge has begun to remove.
select $run_columns from workflow_run where chain = :chain and deleted_at >= 0 order by deleted_at, id limit :limit

-- :count
update workflow_inbox set woken = woken + :more where seq = :event

-- :end    The end of a run that a step waits for.
select status, result, error from workflow_run where id = :run

-- :wake    The reason that a task of a plan is told when it is woken.
select wake from workflow_step where run_id = :run and key = :key

-- :plan    All rows of a plan at once.
insert into workflow_step (
    run_id, tenant, seq, key, kind, status, max_attempts, topic, timeout_seconds, ask, digest, on_timeout
)
select :run, :tenant, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
    value ->> 7, value ->> 8, value ->> 9
from json_each(:rows)

-- :drop
delete from workflow_step where run_id = :run and key = :key

-- :changed_at    A fast checkpoint does not write the row of the run: the trail has its time.
select max(updated_at, coalesce((
    select created_at from workflow_event where workflow_id = :run order by id desc limit 1
), 0)) from workflow_run where id = :run

-- :claimed_at    The last claim of a leased run, or the withdrawal of a pause since then.
select created_at from workflow_event where workflow_id = :run and event_type in ('leased', 'resumed')
order by id desc limit 1

-- :has_open_children
select 1 from workflow_run indexed by idx_workflow_run_parent
where parent_id = :run and finished_at is null and tenant = :tenant limit 1

-- :open_children
select $run_columns from workflow_run indexed by idx_workflow_run_parent
where parent_id = :run and finished_at is null and tenant = :tenant order by id limit :limit

-- :orphans    Open children that no step names any more.
select $run_columns from workflow_run indexed by idx_workflow_run_parent
where parent_id = :run and finished_at is null and tenant = :tenant and parent_step is not null
    and not exists (
        select 1 from workflow_step
        where run_id = :run and key = workflow_run.parent_step and child_id = workflow_run.id
    )
order by id limit :limit

-- :was_added
select 1 from workflow_event
where workflow_id = :run and event_type = 'step_added' and data ->> 'step' = :step limit 1

-- :trail
insert into workflow_event (workflow_id, event_type, data, created_at) values (:run, :type, :data, :now)

-- :trail_of_many
insert into workflow_event (workflow_id, event_type, data, created_at)
select value ->> 0, value ->> 1, value ->> 2, :now from json_each(:rows)

-- :call_holders
update workflow_holder_call set calls = calls + 1 where id = 1

-- :show_running
insert into workflow_running (run_id, fence, steps) values (:run, :fence, :steps)
on conflict do update set fence = excluded.fence, steps = excluded.steps
