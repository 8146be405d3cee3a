-- :there    A known event.
select seq from workflow_inbox where tenant = :tenant and event_id = :id

-- :addressee    The present run of the chain that an event is addressed to.
select present.id, present.status, present.last_error from workflow_run as run
cross join workflow_run as first on first.id = coalesce(run.chain, run.id)
cross join workflow_run as present on present.id = coalesce(first.present, first.id)
where run.id = :run and run.tenant = :tenant and first.deleted_at is null

-- :record    An event addressed to a run belongs to the chain of that run, and lives as long as the chain.
insert into workflow_inbox (tenant, topic, event_id, run_id, payload, at, keep_until)
values (
    :tenant, :topic, :id, coalesce((select chain from workflow_run where id = :run), :run), :payload, :now,
    iif(:run is not null and exists (select 1 from workflow_run where id = :run), null, :keep_until)
)
on conflict (tenant, event_id) do nothing
returning seq

-- :woken
select woken + coalesce((select woken from workflow_delivery where event_seq = :seq), 0)
from workflow_inbox where seq = :seq

-- :undelivered    The oldest undelivered event from a number on.
select seq, tenant, topic, run_id, octet_length(payload) from workflow_inbox
where delivered = 0 and seq >= :seq order by seq limit 1

-- :place    For an event that needs several commits: the last wait that it was handed to.
select run_id, step_seq, woken from workflow_delivery where event_seq = :seq

-- :keep_place
insert or replace into workflow_delivery (event_seq, run_id, step_seq, woken) values (:seq, :run, :step, :woken)

-- :forget_place
delete from workflow_delivery where event_seq = :seq

-- :waiters    One page of the waits on a topic.
select run_id, seq, key from workflow_step
where status = 'waiting' and topic is not null and tenant = :tenant and topic = :topic
    and (run_id, seq) > (:run, :seq)
order by run_id, seq limit :limit

-- :addressed_waiters    The same for an event addressed to one chain: waits of its present run.
select run_id, seq, key from workflow_step
where status = 'waiting' and topic is not null and tenant = :tenant and topic = :topic
    and run_id = (
        select coalesce(first.present, first.id) from workflow_run as run
        cross join workflow_run as first on first.id = coalesce(run.chain, run.id)
        where run.id = :run
    )
    and seq > :seq
order by seq limit :limit

-- :still_pending    The number of these runs that no worker has claimed yet.
select count(*) from workflow_run
where id in (select value from json_each(:runs)) and status = 'pending' and deleted_at is null

-- :delivered
update workflow_inbox set delivered = 1, woken = woken + :more where seq = :seq
