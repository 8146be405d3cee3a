-- Every read adds the changes that are not folded to the kept counts, in one snapshot.

-- :kept    Tenant '' for all tenants.
select type, status, number from workflow_count where tenant = :tenant

-- :totals
select type, what, number from workflow_total where tenant = :tenant

-- :unfolded    A tenant that is null: all tenants.
select type, from_status, to_status, what, sum(number) from workflow_count_change
where :tenant is null or tenant = :tenant
group by type, from_status, to_status, what

-- :rates    In order, and no more than an answer may have. A tenant '' and a null tenant mean all.
select minute, type, what, sum(number) from (
    select minute, type, what, number from (
        select minute, type, what, number from workflow_rate
        where tenant = :kept and minute between :since and :until order by minute, type, what limit :limit
    )
    union all
    select slot - slot % 60000000, type, what, number from workflow_count_change
    where what <> '' and (:tenant is null or tenant = :tenant)
        and slot - slot % 60000000 between :since and :until
)
group by minute, type, what order by minute, type, what limit :limit

-- :next_pair    The next type and tenant that have a pending run.
select type, tenant from workflow_run indexed by idx_workflow_run_tenant_claim
where status = 'pending' and deleted_at is null and (type, tenant) > (:type, :tenant)
order by type, tenant limit 1

-- :has_pending
select 1 from workflow_run indexed by idx_workflow_run_tenant_claim
where status = 'pending' and deleted_at is null and type = :type and tenant = :tenant limit 1

-- :due    Due runs of one lane.
select count(*) from (
    select 1 from workflow_run indexed by idx_workflow_run_tenant_claim
    where type = :type and tenant = :tenant and limit_key is :key and priority = :priority and run_at <= :now
        and status = 'pending' and deleted_at is null
    limit :limit
)

-- :leased
select type, tenant, number from workflow_count where status = 'leased' and tenant <> ''

-- :leased_of_tenant
select type, tenant, number from workflow_count where status = 'leased' and tenant = :tenant

-- :unfolded_leased
select type, tenant, sum(iif(to_status = 'leased', number, 0) - iif(from_status = 'leased', number, 0))
from workflow_count_change
where (from_status = 'leased' or to_status = 'leased') and (:tenant is null or tenant = :tenant)
group by type, tenant

-- :oldest
select slot from workflow_count_change order by slot limit 1

-- :pile
select count(*) from workflow_count_change

-- :some
select slot, tenant, type, from_status, to_status, what, number from workflow_count_change
where slot <= :until order by slot, tenant, type, from_status, to_status, what limit :limit

-- :forget    The same rows.
delete from workflow_count_change
where (slot, tenant, type, from_status, to_status, what) <= (:slot, :tenant, :type, :from_status, :to_status, :what)

-- :add
insert into workflow_count (tenant, type, status, number) values (:tenant, :type, :status, :number)
on conflict (tenant, type, status) do update set number = number + excluded.number

-- :remove_zero
delete from workflow_count where tenant = :tenant and type = :type and status = :status and number = 0

-- :add_total
insert into workflow_total (tenant, type, what, number) values (:tenant, :type, :what, :number)
on conflict (tenant, type, what) do update set number = number + excluded.number

-- :add_rate
insert into workflow_rate (tenant, type, what, minute, number) values (:tenant, :type, :what, :minute, :number)
on conflict (tenant, minute, type, what) do update set number = number + excluded.number

-- :oldest_minute
select min(minute) from workflow_rate

-- :forget_minutes
delete from workflow_rate where (tenant, minute, type, what) in (
    select tenant, minute, type, what from workflow_rate where minute < :until order by minute limit :limit
)

-- :happened    Happenings that leave no mark in the status of their run.
insert into workflow_count_change values (:now - :now % 10000000, :tenant, :type, '', '', :what, 1)
on conflict do update set number = number + 1

-- :real    All runs: it takes time.
select tenant, type, status, count(*) from workflow_run where deleted_at is null group by tenant, type, status

-- :all_kept
select tenant, type, status, number from workflow_count

-- :all_unfolded
select tenant, type, from_status, to_status, sum(number) from workflow_count_change
group by tenant, type, from_status, to_status

-- :repairs    How often the counts were repaired: a repair that others overtake is made again.
select coalesce((select value from workflow_meta where key = 'count_repairs'), '0')

-- :repaired
insert or replace into workflow_meta (key, value) values ('count_repairs', :number)

-- :correct
insert into workflow_count_change values (0, :tenant, :type, '', :status, '', :number)
on conflict do update set number = number + excluded.number
