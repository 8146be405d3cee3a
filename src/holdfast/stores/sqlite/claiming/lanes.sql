-- Lanes: the pending runs of one type by tenant, limit_key and priority, in that order in one index. A head is the
-- first run of a lane. To find the next head takes at most three index lookups, however many runs there are.

-- :within    The next head of the same tenant: with the same key, else with the next key.
coalesce(
    (
        select id from workflow_run
        where type = :type and tenant = head.tenant and limit_key is head.limit_key and priority > head.priority
            and status = 'pending' and deleted_at is null
        order by priority, run_at, id limit 1
    ),
    (
        select id from workflow_run
        where type = :type and tenant = head.tenant and limit_key > coalesce(head.limit_key, '')
            and status = 'pending' and deleted_at is null
        order by limit_key, priority, run_at, id limit 1
    )
)

-- :beyond    The first head of the next tenant.
(
    select id from workflow_run
    where type = :type and tenant > head.tenant and status = 'pending' and deleted_at is null
    order by tenant, limit_key, priority, run_at, id limit 1
)

-- :heads    At most :most heads after a given lane, of one tenant, or also of all later tenants.
with recursive head (number, id, tenant, limit_key, priority, run_at, crashes) as (
    values (0, null, :tenant, :key, :priority, null, 0)
    union all
    select head.number + 1, run.id, run.tenant, run.limit_key, run.priority, run.run_at, run.crashes
    from head cross join workflow_run as run on run.id = coalesce($within, iif(:all, $beyond, null))
    where head.number < :most
)
select priority, run_at, id, crashes, :type, tenant, limit_key from head where id is not null

-- :due_heads    All due heads in queue order.
$heads and run_at <= :now order by priority, run_at, id

-- :due_tenants    Tenants with a due run. After the first due run the search goes on with the next tenant.
with recursive head (tenant, limit_key, priority, run_at) as (
    values (:tenant, null, -1, null)
    union all
    select run.tenant, run.limit_key, run.priority, run.run_at
    from head cross join workflow_run as run
        on run.id = coalesce(iif(head.run_at <= :now, null, $within), iif(:all, $beyond, null))
)
select tenant from head where run_at <= :now

-- :rest    The runs after a run in its lane. Without `indexed by` SQLite would take the index of the whole type.
select priority, run_at, id, crashes, type, tenant, limit_key
from workflow_run indexed by idx_workflow_run_tenant_claim
where type = :type and tenant = :tenant and limit_key is :key and priority = :priority
    and (run_at, id) > (:run_at, :id) and run_at <= :now
    and status = 'pending' and deleted_at is null
order by run_at, id limit :some
