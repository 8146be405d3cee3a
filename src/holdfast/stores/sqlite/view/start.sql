-- :key    The key is checked before the id.
select id, digest from workflow_run where idempotency_key = :key

-- :id
select 1 from workflow_run where id = :run

-- :parent
select 1 from workflow_run where id = :parent and tenant = :tenant and deleted_at is null

-- :newest_event    Events up to this number came before the run.
select coalesce(max(seq), 0) from workflow_inbox

-- :fence    The first fence of a new run. Each increase of a fence is a row of the trail, so no fence is above the highest
-- number that the trail ever gave. `max(id)` would be wrong, because a purge removes rows.
select coalesce(max(seq), 0) from sqlite_sequence where name = 'workflow_event'

-- :start
insert into workflow_run (
    id, tenant, type, kind, payload, priority, run_at, idempotency_key, digest, max_attempts, parent_id, parent_step,
    limit_key, labels, budget, timeout_seconds, timeout_at, ttl_seconds, inbox_mark, fence, created_at, updated_at,
    trace, account, api_key
)
values (
    :id, :tenant, :type, :kind, :payload, :priority, :run_at, :key, :digest, :max_attempts, :parent, :parent_step,
    :limit_key, :labels, :budget, :timeout_seconds, :timeout_at, :ttl_seconds, :mark, :fence, :now, :now,
    :trace, :account, :api_key
)
on conflict (id) do nothing

-- :go_on    The next run of a chain. It counts under the API key of the first one.
insert into workflow_run (
    id, tenant, type, kind, payload, priority, run_at, idempotency_key, digest, max_attempts, parent_id, parent_step,
    limit_key, labels, budget, timeout_seconds, timeout_at, ttl_seconds, inbox_mark, fence, created_at, updated_at, trace,
    account, api_key, chain, cost, status, resume_to, pause_asked_by
)
values (
    :id, :tenant, :type, :kind, :payload, :priority, :run_at, :key, :digest, :max_attempts, :parent, :parent_step,
    :limit_key, :labels, :budget, :timeout_seconds, :timeout_at, :ttl_seconds, :mark, :fence, :now, :now, :trace,
    :account, (select api_key from workflow_run where id = :chain), :chain, :cost, :status, :resume_to, :pause_asked_by
)
on conflict (id) do nothing

-- :origin
insert into workflow_origin (run_id, origin) values (:run, :origin)
