-- Lists by filters. A driver is the index of one filter: statements that begin with `walk` give the ids of its runs by id,
-- newest first; statements that begin with `among` give them in any order. Each has a bound, :many.

-- :walk_all
select id from workflow_run where id < :under and id >= :down_to order by id desc limit :many

-- :walk_tenant    Roots and children have an index each, so that a start writes into one of them. SQLite merges the two
-- as it goes: without a sort.
select id from workflow_run indexed by idx_workflow_run_tenant_roots
where tenant = :tenant and parent_id is null and id < :under and id >= :down_to
union all
select id from workflow_run indexed by idx_workflow_run_tenant_children
where tenant = :tenant and parent_id is not null and id < :under and id >= :down_to
order by id desc limit :many

-- :walk_tenant_roots
select id from workflow_run indexed by idx_workflow_run_tenant_roots
where tenant = :tenant and parent_id is null and id < :under and id >= :down_to order by id desc limit :many

-- :walk_roots
select id from workflow_run indexed by idx_workflow_run_roots
where parent_id is null and id < :under and id >= :down_to order by id desc limit :many

-- :walk_parent
select id from workflow_run indexed by idx_workflow_run_parent
where parent_id = :parent and id < :under and id >= :down_to order by id desc limit :many

-- :walk_label
select run_id from workflow_label
where name = :$name and value = :$value and run_id < :under and run_id >= :down_to order by run_id desc limit :many

-- :walk_any_label
select run_id from workflow_label indexed by idx_workflow_label_name
where name = :$name and run_id < :under and run_id >= :down_to order by run_id desc limit :many

-- :walk_error
select id from workflow_run indexed by idx_workflow_run_error
where status = 'failed' and $failed_as = :error and id < :under and id >= :down_to order by id desc limit :many

-- :walk_status    Several of them are joined by `union all`.
select id from (
    select id from workflow_run indexed by idx_workflow_run_status
    where status = '$status' and id < :under and id >= :down_to order by id desc limit :many
)

-- :walk_waiting    A run with several open waits of that kind comes as often; the distinct ids keep the order.
select distinct run_id from workflow_step indexed by idx_workflow_step_open
where finished_at is null and status = 'waiting' and kind = :waiting_on and run_id < :under and run_id >= :down_to
order by run_id desc limit :many

-- :among_key
select id from workflow_run where idempotency_key = :key limit :many

-- :among_pending
select id from workflow_run indexed by idx_workflow_run_claim where status = 'pending' and deleted_at is null limit :many

-- :among_leased
select id from workflow_run indexed by idx_workflow_run_leases where status = 'leased' limit :many

-- :among_errors
select id from workflow_run indexed by idx_workflow_run_error
where status = 'failed' and $failed_as in (select value from json_each(:errors)) limit :many

-- :among_error_prefix
select id from workflow_run indexed by idx_workflow_run_error
where status = 'failed' and $failed_as >= :error and $failed_as < :error_end limit :many

-- :among_finished
select id from (
    select id from workflow_run indexed by idx_workflow_run_finished
    where finished_at is not null and expires_at is null and finished_at >= :since and finished_at < :until
    union all
    select id from workflow_run indexed by idx_workflow_run_finished_ttl
    where finished_at is not null and expires_at is not null and finished_at >= :since and finished_at < :until
) limit :many

-- :among_changed    The last change of a run is its start, its end, or a row of that index; or the run is leased.
select id from (
    select id from workflow_run indexed by idx_workflow_run_leases where status = 'leased'
    union all
    select id from workflow_run indexed by idx_workflow_run_changed
    where status <> 'leased' and updated_at > created_at and (finished_at is null or updated_at <> finished_at)
        and updated_at >= :since and updated_at < :until
    union all
    select id from workflow_run indexed by idx_workflow_run_finished
    where finished_at is not null and expires_at is null and finished_at >= :since and finished_at < :until
    union all
    select id from workflow_run indexed by idx_workflow_run_finished_ttl
    where finished_at is not null and expires_at is not null and finished_at >= :since and finished_at < :until
    union all
    select id from workflow_run where id < :first_after and id >= :first_in
    union all
    select id from workflow_run indexed by idx_workflow_run_odd_id
    where $is_odd_id and created_at >= :since and created_at < :until
) limit :many

-- :odd_ids
select id from workflow_run indexed by idx_workflow_run_odd_id
where $is_odd_id and created_at >= :since and created_at < :until limit :many

-- :is_odd_id    As the index says it.
substr(id, 1, 8) || substr(id, 10, 4)
    not between printf('%012x', created_at / 1000 - 3600000) and printf('%012x', created_at / 1000 + 3600000)

-- :failed_as    As the index says it.
iif(json_valid(error), coalesce(error ->> '$.fingerprint', replace(replace(replace(
    iif(
        error ->> '$.type' = 'StepFailed' and instr(error ->> '$.message', ''' failed: ') > 0
            and instr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), ': ') > 0,
        substr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), 1,
            min(100, instr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), ': ') - 1)),
        substr(coalesce(nullif(error ->> '$.type', ''), error ->> '$.kind', ''), 1, 100)
    )
    || iif(error ->> '$.step' is null, '', ' at ' || substr(error ->> '$.step', 1, 200))
    || ': ' || iif(
        error ->> '$.type' = 'StepFailed' and instr(error ->> '$.message', ''' failed: ') > 0
            and instr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), ': ') > 0,
        substr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10),
            instr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), ': ') + 2, 200),
        substr(coalesce(error ->> '$.message', ''), 1, 200)
    ),
char(10), ' '), char(13), ' '), char(9), ' ')), null)

-- :changed_at    A fast checkpoint does not write the row of the run, which is leased then: the trail has its time.
iif(status = 'leased', max(updated_at, coalesce((
    select created_at from workflow_event where workflow_id = workflow_run.id order by workflow_event.id desc limit 1
), 0)), updated_at)

-- :has_label
exists (select 1 from workflow_label where name = :$name and value = :$value and run_id = workflow_run.id)

-- :has_any_label
exists (select 1 from workflow_label where name = :$name and run_id = workflow_run.id)

-- :matching    Those of the ids that match all terms. The cross join keeps the planner from another index.
select id from (select value as wanted from json_each(:ids)) cross join workflow_run on id = wanted
where $terms order by id desc

-- :children
select status from workflow_run indexed by idx_workflow_run_parent
where parent_id = :run and deleted_at is null and exists (
    select 1 from workflow_run as parent
    where parent.id = :run and parent.deleted_at is null and coalesce(parent.tenant = :tenant, true)
) limit :most
