-- :due    Only runs that are open have open waits.
select run_id, key, kind from workflow_step
where status = 'waiting' and due_at is not null and due_at <= :now and kind <> 'child'
order by due_at, run_id, seq limit :limit

-- :next
select due_at from workflow_step
where status = 'waiting' and due_at is not null and kind <> 'child'
order by due_at limit 1

-- :due_but_plans    The same for a keeper that leaves the deadlines of plans' tasks and awaited events alone: only
-- rows of a plan have a timeout. By an index of what is left.
select run_id, key, kind from workflow_step indexed by idx_workflow_step_due_but_plans
where status = 'waiting' and due_at is not null and due_at <= :now and kind <> 'child' and kind <> 'task'
    and (kind <> 'event' or timeout_seconds is null)
order by due_at, run_id, seq limit :limit

-- :next_but_plans
select due_at from workflow_step indexed by idx_workflow_step_due_but_plans
where status = 'waiting' and due_at is not null and kind <> 'child' and kind <> 'task'
    and (kind <> 'event' or timeout_seconds is null)
order by due_at limit 1

-- :next_news    At once, whatever the clock said when it was recorded: an event that is not delivered, a run that owes.
select 0 where exists (select 1 from workflow_inbox where delivered = 0)
    or exists (select 1 from workflow_run where owes > 0)
