-- :registry
select workflow_name, runtime, is_enabled from workflow_registry

-- :limits
select scope, name, concurrency, rate, period, weight, paused_until from workflow_limit

-- :mark
select mark from workflow_limit_mark where id = 1

-- :leased    Who holds how much. There is no index for it: claims without limits would have to keep it up to date.
select type, tenant, count(*) from workflow_run where status = 'leased' group by type, tenant

-- :leased_key
select count(*) from workflow_run where status = 'leased' and limit_key = :key

-- :tenants    A loose walk: one look a tenant, however much it has pending.
with recursive tenant (name) as (
    select min(tenant) from workflow_run where status = 'pending' and deleted_at is null
    union all
    select (
        select min(tenant) from workflow_run
        where tenant > tenant.name and status = 'pending' and deleted_at is null
    )
    from tenant where tenant.name is not null
)
select name from tenant where name is not null

-- :keys    The same for the keys of a tenant and type.
with recursive key (name) as (
    select min(limit_key) from workflow_run
    where tenant = :tenant and type = :type and limit_key > '' and status = 'pending' and deleted_at is null
    union all
    select (
        select min(limit_key) from workflow_run
        where tenant = :tenant and type = :type and limit_key > key.name
            and status = 'pending' and deleted_at is null
    )
    from key where key.name is not null
)
select name from key where name is not null

-- :used    The number of the last claim that counts, and of the last one before them.
select
    last.number,
    (
        select number - taken from workflow_limit_use
        where scope = :scope and name = :name and at > :since
        order by at limit 1
    )
from (
    select number from workflow_limit_use
    where scope = :scope and name = :name and at > :since and at <= :until
    order by at desc limit 1
) as last

-- :free    The claim after whose time one more is within the rate.
select at from workflow_limit_use
where scope = :scope and name = :name and at > :since and number > :number
order by at limit 1

-- :go_back    Claims from further ahead than one period are of a clock that went wrong.
delete from workflow_limit_use where scope = :scope and name = :name and at > :until

-- :use    None earlier than the last one, though the clock be turned back.
insert into workflow_limit_use (scope, name, at, number, taken, gone_at)
select :scope, :name, max(:now, coalesce(max(at), 0)), coalesce(max(number), 0) + :taken, :taken,
    max(:now, coalesce(max(at), 0)) + :period
from workflow_limit_use where scope = :scope and name = :name
on conflict (scope, name, at) do update set number = excluded.number, taken = taken + excluded.taken

-- :forget_used    A few at a time: each is removed once.
delete from workflow_limit_use
where (scope, name, at) in (
    select scope, name, at from workflow_limit_use where gone_at <= :now order by gone_at limit 100
)

-- :passed
select passed from workflow_limit_mark where id = 1

-- :shares
select tenant, at from workflow_limit_share

-- :set_passed
update workflow_limit_mark set passed = :passed where id = 1

-- :set_shares
insert into workflow_limit_share (tenant, at) select value ->> 0, value ->> 1 from json_each(:ahead) where true
on conflict (tenant) do update set at = excluded.at

-- :drop_shares    Whoever is not ahead begins where the others are.
delete from workflow_limit_share where at <= :passed
