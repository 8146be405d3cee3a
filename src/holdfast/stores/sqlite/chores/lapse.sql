-- :due    Only open runs have open waits.
select run_id, key, kind from workflow_step
where status = 'waiting' and due_at is not null and due_at <= :now and kind <> 'child'
order by due_at, run_id, seq limit :limit

-- :next
select due_at from workflow_step
where status = 'waiting' and due_at is not null and kind <> 'child'
order by due_at limit 1

-- :due_but_plans    The same for a keeper that does not handle the deadlines of tasks and awaited events of plans. Only
-- rows of a plan have a timeout. By an index of the other waits.
select run_id, key, kind from workflow_step indexed by idx_workflow_step_due_but_plans
where status = 'waiting' and due_at is not null and due_at <= :now and kind <> 'child' and kind <> 'task'
    and (kind <> 'event' or timeout_seconds is null)
order by due_at, run_id, seq limit :limit

-- :next_but_plans
select due_at from workflow_step indexed by idx_workflow_step_due_but_plans
where status = 'waiting' and due_at is not null and kind <> 'child' and kind <> 'task'
    and (kind <> 'event' or timeout_seconds is null)
order by due_at limit 1

-- :next_news    An undelivered event or a run that owes something is due at once, whatever time it was recorded at.
select 0 where exists (select 1 from workflow_inbox where delivered = 0)
    or exists (select 1 from workflow_run where owes > 0)
