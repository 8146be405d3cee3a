-- :key    The key is checked before the id.
select id, digest from workflow_run where idempotency_key = :key

-- :taken    The same for many keys and ids; a row without a key is about an id.
select run.idempotency_key, run.id, run.digest
from json_each(:keys) as asked cross join workflow_run as run on run.idempotency_key = asked.value
union all
select null, run.id, '' from json_each(:ids) as asked cross join workflow_run as run on run.id = asked.value

-- :before    All that new runs depend on, in one statement: keys and ids that are taken, the highest number of the trail
-- (see :fence), the newest event, and the definitions. The first column names the kind of the row.
select 'key', run.idempotency_key, run.id, run.digest, null, null, null, null, null
from json_each(:keys) as asked cross join workflow_run as run on run.idempotency_key = asked.value
union all
select 'id', run.id, null, null, null, null, null, null, null
from json_each(:ids) as asked cross join workflow_run as run on run.id = asked.value
union all
select 'fence', coalesce(max(seq), 0), null, null, null, null, null, null, null
from sqlite_sequence where name = 'workflow_event'
union all
select 'event', coalesce(max(seq), 0), null, null, null, null, null, null, null from workflow_inbox
union all
select 'type', known.type, kind, max_attempts, timeout_seconds, description, steps, budget, covers_children
from json_each(:types) as asked cross join workflow_definition as known on known.type = asked.value

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
