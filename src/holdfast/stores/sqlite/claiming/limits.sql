-- :registry
select workflow_name, runtime, is_enabled, description, intent_type, created_at, updated_at
from workflow_registry order by workflow_name

-- :register    A null keeps the current value.
insert into workflow_registry (workflow_name, runtime, is_enabled, description, intent_type, created_at, updated_at)
values (
    :name, coalesce(:runtime, 'python'), coalesce(:enabled, 1), coalesce(:description, ''),
    coalesce(:intent_type, 'workflow'), :now, :now
)
on conflict (workflow_name) do update
set runtime = coalesce(:runtime, runtime), is_enabled = coalesce(:enabled, is_enabled),
    description = coalesce(:description, description), intent_type = coalesce(:intent_type, intent_type),
    updated_at = :now
returning workflow_name, runtime, is_enabled, description, intent_type, created_at, updated_at

-- :unregister
delete from workflow_registry where workflow_name = :name

-- :limits
select scope, name, concurrency, rate, period, weight, paused_until from workflow_limit order by scope, name

-- :limit
select scope, name, concurrency, rate, period, weight, paused_until from workflow_limit
where scope = :scope and name = :name

-- :put
insert into workflow_limit (scope, name, concurrency, rate, period, weight, paused_until, updated_at)
values (:scope, :name, :concurrency, :rate, :period, :weight, :paused_until, :now)
on conflict (scope, name) do update
set concurrency = excluded.concurrency, rate = excluded.rate, period = excluded.period, weight = excluded.weight,
    paused_until = excluded.paused_until, updated_at = excluded.updated_at

-- :remove
delete from workflow_limit where scope = :scope and name = :name

-- :over    Pauses that are over.
select scope, name, concurrency, rate, period, weight, paused_until from workflow_limit where paused_until <= :now

-- :used_names
select distinct name from workflow_limit_use
where scope = :scope and name >= :since and (name = :since or name < :beyond)

-- :forget_uses    Claims that were counted under another rate.
delete from workflow_limit_use where scope = :scope and name in (select value from json_each(:names))

-- :waiting
select distinct tenant from workflow_limit_place

-- :forget_places    All places when no tenant has a weight any more, else those of some tenants.
delete from workflow_limit_place where not :weighs or tenant in (select value from json_each(:tenants))

-- :forget_books
delete from workflow_limit_book where not :weighs

-- :run
select type, tenant, limit_key from workflow_run where id = :run and status = 'pending' and deleted_at is null
