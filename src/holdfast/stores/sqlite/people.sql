-- :open    Open gates of a tenant's runs that are not deleted, oldest run first. Only open runs have open waits.
select step.run_id, run.type, run.tenant, step.key, step.ask, step.digest, coalesce(step.started_at, run.created_at),
    step.due_at
from workflow_step as step indexed by idx_workflow_step_approval cross join workflow_run as run on run.id = step.run_id
where step.kind = 'approval' and step.status = 'waiting' and step.finished_at is null and step.tenant = :tenant
    and (step.run_id, step.seq) > (:run, :seq) and run.deleted_at is null
order by step.run_id, step.seq limit :limit

-- :open_of_all    The same for all tenants.
select step.run_id, run.type, run.tenant, step.key, step.ask, step.digest, coalesce(step.started_at, run.created_at),
    step.due_at
from workflow_step as step indexed by idx_workflow_step_any_approval
cross join workflow_run as run on run.id = step.run_id
where step.kind = 'approval' and step.status = 'waiting' and step.finished_at is null
    and (step.run_id, step.seq) > (:run, :seq) and run.deleted_at is null
order by step.run_id, step.seq limit :limit

-- :seq    The number of the gate at which a page ended. If the gate was decided meanwhile, the page begins at the start of its run.
select seq from workflow_step where run_id = :run and key = :step and status = 'waiting'
