-- :there    An event that is known already.
select seq from workflow_inbox where tenant = :tenant and event_id = :id

-- :addressee    The present run of the chain that is meant.
select present.id, present.status from workflow_run as run
cross join workflow_run as first on first.id = coalesce(run.chain, run.id)
cross join workflow_run as present on present.id = coalesce(first.present, first.id)
where run.id = :run and run.tenant = :tenant and first.deleted_at is null

-- :record    One that is addressed is its chain's, and lives as long as that, if there is one.
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

-- :undelivered    The oldest one, from a given one on.
select seq, tenant, topic, run_id, octet_length(payload) from workflow_inbox
where delivered = 0 and seq >= :seq order by seq limit 1

-- :place    The wait up to which an event was handed over that takes several commits.
select run_id, step_seq, woken from workflow_delivery where event_seq = :seq

-- :keep_place
insert or replace into workflow_delivery (event_seq, run_id, step_seq, woken) values (:seq, :run, :step, :woken)

-- :forget_place
delete from workflow_delivery where event_seq = :seq

-- :waiters    Who waits on a topic, a page of them.
select run_id, seq, key from workflow_step
where status = 'waiting' and topic is not null and tenant = :tenant and topic = :topic
    and (run_id, seq) > (:run, :seq)
order by run_id, seq limit :limit

-- :addressed_waiters    The same, for an event that only one chain may see: of its present run.
select run_id, seq, key from workflow_step
where status = 'waiting' and topic is not null and tenant = :tenant and topic = :topic
    and run_id = (
        select coalesce(first.present, first.id) from workflow_run as run
        cross join workflow_run as first on first.id = coalesce(run.chain, run.id)
        where run.id = :run
    )
    and seq > :seq
order by seq limit :limit

-- :still_pending    Of some runs, those that nobody has taken up yet.
select count(*) from workflow_run
where id in (select value from json_each(:runs)) and status = 'pending' and deleted_at is null

-- :delivered
update workflow_inbox set delivered = 1, woken = woken + :more where seq = :seq
