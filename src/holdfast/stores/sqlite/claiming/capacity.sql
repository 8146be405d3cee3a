-- :registry
select workflow_name, runtime, is_enabled from workflow_registry

-- :limits
select scope, name, concurrency, rate, period, weight, paused_until from workflow_limit

-- :revision
select mark from workflow_limit_mark where id = 1

-- :leased    Leased runs by type and tenant. An index would slow down every claim, also where no limits are set.
select type, tenant, count(*) from workflow_run where status = 'leased' group by type, tenant

-- :leased_key
select count(*) from workflow_run where status = 'leased' and limit_key = :key

-- :leased_keys
select limit_key, count(*) from workflow_run where status = 'leased' and limit_key is not null group by limit_key

-- :used    The number of the last claim that counts, and of the last claim before those that count.
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

-- :all_used    The same for every name of a scope.
with recursive used (name) as (
    select min(name) from workflow_limit_use where scope = :scope
    union all
    select (select min(name) from workflow_limit_use where scope = :scope and name > used.name)
    from used where used.name is not null
)
select
    name,
    (
        select number from workflow_limit_use
        where scope = :scope and name = used.name and at > :since and at <= :until
        order by at desc limit 1
    ),
    (
        select number - taken from workflow_limit_use
        where scope = :scope and name = used.name and at > :since
        order by at limit 1
    )
from used where name is not null

-- :free    The time of the oldest claim that has to leave the period before the rate allows one more.
select at from workflow_limit_use
where scope = :scope and name = :name and at > :since and number > :number
order by at limit 1
