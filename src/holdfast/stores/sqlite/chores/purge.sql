-- Expired runs, oldest first, by an index for each list. A run is kept while a message of its outbox is pending, while
-- its open parent waits for it, and while its children still have to be cancelled. But a run that is deleted and open
-- will never end: it is removed, and its parent is told, unless the parent is deleted too. The first run of a chain is
-- removed with the last one, and the last one after all others.

-- :deleted
deleted_at is not null and deleted_at <= :until

-- :expired
expires_at is not null and expires_at <= :until and finished_at is not null

-- :finished
finished_at is not null and expires_at is null and finished_at <= :until

-- :some_free    The removable runs among the next :most runs of a list. Most of them may be held.
select id from (
    select id, ($free) as is_free from workflow_run as run
    where $expired and ($at, id) > (:at, :id) order by $at, id limit :most
) where is_free limit :limit

-- :last_of_some    The last of these runs. No row: there are no more.
select $at, id from workflow_run where $expired and ($at, id) > (:at, :id) order by $at, id limit 1 offset :most - 1

-- :free
run.owes < 2 and not exists (select 1 from workflow_outbox where run_id = run.id and status = 'pending')
    and not exists (
        select 1 from workflow_run as parent cross join workflow_step as step on step.run_id = parent.id
        where parent.id = run.parent_id and parent.finished_at is null
            and (run.finished_at is not null or parent.deleted_at is not null)
            and step.status = 'waiting' and step.child_id = run.id and step.finished_at is null
    )
    and not exists (select 1 from workflow_run as last where last.id = run.present)
    and not exists (
        select 1 from workflow_run as first
        where first.id = run.chain and first.present = run.id and (
            first.owes > 1
            or exists (select 1 from workflow_outbox where run_id = first.id and status = 'pending')
            or exists (select 1 from workflow_run as link where link.chain = run.chain and link.id <> run.id)
        )
    )

-- :hide    A run that is removed in several commits is hidden from the first commit on, and cannot be restored.
update workflow_run set deleted_at = -1, rev = rev + 1
where id = :run or id = (
    select first.id from workflow_run as run cross join workflow_run as first on first.id = run.chain
    where run.id = :run and first.present = run.id
)

-- :first    The first run of the chain whose last run this is.
select first.id from workflow_run as run cross join workflow_run as first on first.id = run.chain
where run.id = :run and first.present = run.id

-- :sizes_of_trail
select octet_length(data) from workflow_event where workflow_id = :run order by id limit :some

-- :some_trail
delete from workflow_event
where id in (select id from workflow_event where workflow_id = :run order by id limit :some)

-- :sizes_of_steps
select coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0) + coalesce(octet_length(ask), 0)
    + coalesce(octet_length(wake), 0)
from workflow_step where run_id = :run order by seq limit :some

-- :some_steps
delete from workflow_step
where run_id = :run and seq in (select seq from workflow_step where run_id = :run order by seq limit :some)

-- :sizes_of_receipts
select 0 from workflow_receipt where run_id = :run order by event_seq limit :some

-- :some_receipts
delete from workflow_receipt
where run_id = :run
    and event_seq in (select event_seq from workflow_receipt where run_id = :run order by event_seq limit :some)

-- :sizes_of_passed
select 0 from workflow_chain_topic where chain = :run order by topic limit :some

-- :some_passed
delete from workflow_chain_topic
where chain = :run
    and topic in (select topic from workflow_chain_topic where chain = :run order by topic limit :some)

-- :sizes_of_accounts    The budget that the run shared. Covered runs that are open go on without it.
select 0 from workflow_account where id = :run limit :some

-- :some_accounts
delete from workflow_account where id = :run and :some > 0

-- :sizes_of_origins
select 0 from workflow_origin where run_id = :run limit :some

-- :some_origins
delete from workflow_origin where run_id = :run and :some > 0

-- :sizes_of_addressed
select octet_length(payload) from workflow_inbox where run_id is not null and run_id = :run order by seq limit :some

-- :some_addressed
delete from workflow_inbox
where seq in (select seq from workflow_inbox where run_id is not null and run_id = :run order by seq limit :some)

-- :sizes_of_outbox
select octet_length(payload) + coalesce(octet_length(last_error), 0)
from workflow_outbox where run_id = :run order by seq limit :some

-- :some_outbox
delete from workflow_outbox where seq in (select seq from workflow_outbox where run_id = :run order by seq limit :some)

-- :awaited_by    The parent and step that wait for a run that has not ended.
select parent_id, parent_step from workflow_run
where id = :run and finished_at is null and parent_step is not null

-- :size_of_run
select coalesce(octet_length(payload), 0) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
from workflow_run where id = :run

-- :run
delete from workflow_run where id = :run

-- :over    Delivered events whose retention has ended. An event addressed to a run is removed with that run, if there
-- is one.
select seq, octet_length(payload) from workflow_inbox
where keep_until is not null and keep_until <= :now and at <= :since and delivered = 1
    and (
        run_id is null or not exists (select 1 from workflow_run where id = workflow_inbox.run_id)
        or exists (select 1 from workflow_receipt where event_seq = workflow_inbox.seq and link is not null)
    )
order by keep_until limit :limit

-- :receipts_of_events
delete from workflow_receipt where link is not null and event_seq in (select value from json_each(:events))

-- :events
delete from workflow_inbox where seq in (select value from json_each(:events))

-- :gone
select worker from workflow_worker where seen_at <= :since

-- :workers
delete from workflow_worker where worker in (select value from json_each(:workers))

-- :uncounted
select 1 from workflow_limit_use where gone_at <= :now limit 1
