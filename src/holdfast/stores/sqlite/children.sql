-- What runs owe since their last commit: 1 the parent is to be told of the end, 2 the open children are to be cancelled,
-- 4 those are that no step names any more, 8 its open waits are to be looked at.

-- :owing    Found by an index that holds nobody else.
select id, owes, parent_id, parent_step from workflow_run where owes > 0 order by id limit :limit

-- :any_owing
select 1 from workflow_run where owes > 0 limit 1

-- :awaiting    The parent's step, if it waits for this very run.
select seq, key, kind, topic, due_at from workflow_step
where run_id = :parent and key = :step and kind = 'child' and status = 'waiting' and child_id = :run

-- :told
update workflow_run set owes = owes & ~1 where id in (select value from json_each(:runs))

-- :open_children
select id, kind, status, fence from workflow_run
where parent_id = :run and finished_at is null and tenant = (select tenant from workflow_run where id = :run)
order by id limit :limit

-- :orphans
select id, kind, status, fence from workflow_run as child
where parent_id = :run and finished_at is null and parent_step is not null
    and tenant = (select tenant from workflow_run where id = :run)
    and not exists (
        select 1 from workflow_step where run_id = :run and key = child.parent_step and child_id = child.id
    )
order by id limit :limit

-- :cancelled
update workflow_run set owes = owes & ~6 where id = :run

-- :looked
update workflow_run set owes = owes & ~8 where id = :run
