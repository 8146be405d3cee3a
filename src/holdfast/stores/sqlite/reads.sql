-- :owner
select tenant, kind, status, attempt, error, fence from workflow_run where id = :run and deleted_at is null

-- :running    The steps that the holder executes now, and what is recorded of them.
select running.steps, (
    select json_group_array(json_array(step.key, step.status, step.attempts))
    from json_each(iif(json_valid(running.steps), running.steps, '[]')) as one
    cross join workflow_step as step on step.run_id = running.run_id and step.key = one.value ->> 'step'
)
from workflow_running as running where running.run_id = :run and running.fence = :fence

-- :has_open_wait
exists (
    select 1 from workflow_step
    where run_id = workflow_run.id and status = 'waiting' and finished_at is null and kind = ?
)

-- :has_key    For all tenants: the key is stored as given for the default tenant, with the tenant in front for others.
idempotency_key = iif(tenant = 'default', '', tenant || char(31)) || ?

-- :holder_calls
select calls from workflow_holder_call where id = 1

-- :waiting_on
select distinct run_id from workflow_step
where status = 'waiting' and topic is not null and tenant = :tenant and topic = :topic
    and exists (select 1 from workflow_run where id = run_id and deleted_at is null)
order by run_id

-- :definitions
select type, kind, max_attempts, timeout_seconds, description, steps, budget, covers_children
from workflow_definition order by type

-- :schemas    The same with schemas, which may be large.
select type, kind, max_attempts, timeout_seconds, description, steps, budget, covers_children, params_schema,
    result_schema
from workflow_definition order by type

-- :workers
select worker, types, patterns, tenants, runtime, slots, stragglers, sinks, lacking, library, seen_at from workflow_worker where seen_at >= :since order by worker

-- :kinds    The types and tenants of some runs.
select distinct type, tenant from workflow_run where id in (select value from json_each(:runs))

-- :undelivered    At most so many of each.
select (select count(*) from (select 1 from workflow_inbox where delivered = 0 limit :most))
    + (select count(*) from (select 1 from workflow_run where owes > 0 limit :most))

-- :stuck    Open runs that nothing could ever wake, each part by the index of its status. No move leaves such a run.
select id from (
    select id from workflow_run where status = 'pending' and deleted_at is null and run_at is null
    union all
    select id from workflow_run
    where status = 'leased' and deleted_at is null and (leased_by is null or lease_until is null)
    union all
    select id from workflow_run
    where (status = 'waiting' or status = 'paused' and resume_to = 'waiting') and deleted_at is null
        and not exists (
            select 1 from workflow_step
            where run_id = workflow_run.id and status = 'waiting' and finished_at is null
                and (due_at is not null or topic is not null or kind = 'approval' or kind = 'child')
        )
    union all
    select id from workflow_run where status = 'paused' and deleted_at is null and resume_to is null
)
order by id limit :limit

-- :has_unfinished    Whether a plan has a step up to this seq that has not succeeded.
select 1 from workflow_step where run_id = ? and seq <= ? and status <> 'succeeded' limit 1
