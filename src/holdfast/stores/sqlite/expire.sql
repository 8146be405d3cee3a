-- :past    Leases are indexed by holder, so that a renewal moves few entries: walk the holders, and of each
-- only the leases that have run out.
with recursive holder (name) as (
    select min(leased_by) from workflow_run where status = 'leased'
    union all
    select (select min(leased_by) from workflow_run where status = 'leased' and leased_by > holder.name)
    from holder where holder.name is not null
)
select run.id
from holder
cross join workflow_run as run on run.leased_by = holder.name
where run.status = 'leased' and run.lease_until < :now
limit :limit

-- :next    When the first lease ends.
with recursive holder (name) as (
    select min(leased_by) from workflow_run where status = 'leased'
    union all
    select (select min(leased_by) from workflow_run where status = 'leased' and leased_by > holder.name)
    from holder where holder.name is not null
)
select min((
    select min(lease_until) from workflow_run where status = 'leased' and leased_by = holder.name
)) from holder where holder.name is not null
