-- :put    Part of the sender's commit. A known id changes nothing.
insert into workflow_outbox (id, run_id, tenant, step, sink, key, payload, behind, next_at, created_at)
select :id, run.id, run.tenant, :step, :sink, :key, :payload,
    exists (
        select 1 from workflow_outbox as other
        where other.status = 'pending' and other.key is not null
            and other.tenant = run.tenant and other.sink = :sink and other.key = :key
    ),
    :now, :now
from workflow_run as run where run.id = :run
on conflict (id) do nothing

-- :due    For each sink, by its index, as many as its free slots; then in turns over the sinks. Only the size of payloads is
-- read, because not all chosen messages are taken. A function goes before a webhook of the same name, and may serve
-- some tenants only.
with own (name) as (select value from json_each(:sinks)),
has (name, taken) as materialized (select key, value from json_each(:taken)),
bounded (name, bound) as materialized (select key, value from json_each(:bounds)),
served (name, own, taken, room) as materialized (
    select name, own, ifnull(taken, 0), ifnull(bound, :each) - ifnull(taken, 0)
    from (
        select name, 1 as own from own
        union all
        select name, 0 from workflow_webhook where :webhooks and name not in own
    )
    left join has using (name) left join bounded using (name)
    where ifnull(bound, :each) > ifnull(taken, 0)
),
found (name, own, taken, room, seq, next_at) as (
    select served.*, message.seq, message.next_at
    from served cross join workflow_outbox as message on message.seq in (
        select seq from workflow_outbox as due
        where due.sink = served.name and due.status = 'pending' and due.behind = 0 and due.next_at <= :now
        order by due.next_at, due.seq limit :most
    )
    where :tenants is null or not served.own
    union all
    select served.*, message.seq, message.next_at
    from served cross join json_each(:tenants) as tenant cross join workflow_outbox as message on message.seq in (
        select seq from workflow_outbox as due
        where due.sink = served.name and due.tenant = tenant.value
            and due.status = 'pending' and due.behind = 0 and due.next_at <= :now
        order by due.next_at, due.seq limit :most
    )
    where served.own
),
placed as (select *, row_number() over (partition by name order by next_at, seq) as place from found),
chosen as materialized (
    select name, own, seq, next_at, taken + place as turn
    from placed where place <= room order by turn, next_at, seq limit :limit
)
select message.seq, message.id, message.fence + 1, message.tenant, message.run_id, message.sink, message.key,
    octet_length(message.payload), message.attempts + 1, message.created_at,
    chosen.own, webhook.name, webhook.target, webhook.allow_private, webhook.rev, webhook.created_at, webhook.updated_at
from chosen cross join workflow_outbox as message on message.seq = chosen.seq
left join workflow_webhook as webhook on webhook.name = chosen.name and not chosen.own
order by chosen.turn, chosen.next_at, chosen.seq

-- :payload    And the trace of the run, which is kept as long as its messages.
select payload, (select trace from workflow_run where id = run_id) from workflow_outbox where seq = :seq

-- :take
update workflow_outbox
set fence = fence + 1, attempts = attempts + 1, held_by = :relay, next_at = :until, tried_at = coalesce(tried_at, :now)
where seq in (select value from json_each(:seqs))

-- :held    The guard of an answer: the relay must still hold the message with this fence.
select seq, tenant, sink, key, tried_at from workflow_outbox
where id = :id and fence = :fence and held_by is not null

-- :leave    The message is sent or dead.
update workflow_outbox set status = :status, held_by = null, last_error = :error, sent_at = :sent_at where seq = :seq

-- :next_of_line    The next message of the same queue is due.
update workflow_outbox set behind = 0, next_at = :now
where seq = (
    select min(seq) from workflow_outbox
    where status = 'pending' and key is not null and tenant = :tenant and sink = :sink and key = :key
)

-- :back_off
update workflow_outbox set next_at = :next_at, held_by = null, last_error = :error where seq = :seq

-- :release    The message goes back without a counted attempt.
update workflow_outbox
set next_at = :next_at, held_by = null, last_error = :error, attempts = attempts - 1,
    tried_at = iif(attempts > 1, tried_at, null)
where seq = :seq

-- :next    The time at which a message of these sinks is next due.
with own (name) as (select value from json_each(:sinks)),
served (name) as (
    select name from own where :tenants is null
    union all
    select name from workflow_webhook where :webhooks and name not in own
)
select min(at) from (
    select (
        select min(next_at) from workflow_outbox where sink = served.name and status = 'pending' and behind = 0
    ) as at from served
    union all
    select (
        select min(next_at) from workflow_outbox
        where sink = own.name and tenant = tenant.value and status = 'pending' and behind = 0
    ) from own cross join json_each(:tenants) as tenant
)

-- :list
select seq, id, tenant, run_id, step, sink, key, payload, status, attempts, held_by,
    iif(status = 'pending' and not behind, next_at, null), last_error, created_at, tried_at, sent_at
from workflow_outbox where $terms order by seq limit ?

-- :left    Messages that are not sent have a separate index.
status <> 'sent'

-- :resend    The message moves to the end of the table, and so to the end of its queue.
insert or replace into workflow_outbox (
    id, run_id, tenant, step, sink, key, payload, fence, last_error, created_at, next_at, behind
)
select id, run_id, tenant, step, sink, key, payload, fence, last_error, created_at, :now,
    exists (
        select 1 from workflow_outbox as other
        where other.status = 'pending' and other.key is not null
            and other.tenant = mine.tenant and other.sink = mine.sink and other.key = mine.key
    )
from workflow_outbox as mine where id = :id and status <> 'pending'

-- :hurry
update workflow_outbox set next_at = :now
where id = :id and status = 'pending' and not behind and held_by is null

-- :backlog    At most so many of each sink; the index goes from one sink to the next.
with recursive sinks (sink) as (
    select min(sink) from workflow_outbox where status <> 'sent'
    union all
    select (select min(o.sink) from workflow_outbox as o where o.status <> 'sent' and o.sink > s.sink)
    from sinks as s where s.sink is not null
)
select s.sink,
    (
        select count(*) from (
            select 1 from workflow_outbox where sink = s.sink and status = 'pending' and status <> 'sent' limit :most
        )
    ),
    (
        select count(*) from (
            select 1 from workflow_outbox where sink = s.sink and status = 'dead' and status <> 'sent' limit :most
        )
    ),
    (select min(created_at) from workflow_outbox where sink = s.sink and status = 'pending' and status <> 'sent')
from sinks as s where s.sink is not null order by s.sink

-- :webhooks
select name, target, allow_private, rev, created_at, updated_at from workflow_webhook order by name

-- :make_webhook
insert into workflow_webhook (name, target, allow_private, created_at, updated_at)
values (:name, :target, :allow_private, :now, :now)
on conflict (name) do nothing

-- :change_webhook    Only at the revision that was read.
update workflow_webhook set target = :target, allow_private = :allow_private, updated_at = :now, rev = rev + 1
where name = :name and rev = :rev

-- :remove_webhook
delete from workflow_webhook where name = :name
