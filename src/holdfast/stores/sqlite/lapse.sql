-- :due    Only runs that are open have open waits.
select run_id, seq, key, kind, topic, due_at from workflow_step
where status = 'waiting' and due_at is not null and due_at <= :now and kind in ('sleep', 'event')
order by due_at, run_id, seq limit :limit

-- :next
select due_at from workflow_step
where status = 'waiting' and due_at is not null and kind in ('sleep', 'event')
order by due_at limit 1

-- :next_event    At once, whatever the clock said when it was recorded.
select 0 from workflow_inbox where delivered = 0 limit 1
