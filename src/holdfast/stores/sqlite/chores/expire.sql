-- :past    Leases are indexed by holder, so that a renewal moves few entries. So walk over the holders, and for each
-- read only the leases that have expired.
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

-- :next    The end of the first lease.
with recursive holder (name) as (
    select min(leased_by) from workflow_run where status = 'leased'
    union all
    select (select min(leased_by) from workflow_run where status = 'leased' and leased_by > holder.name)
    from holder where holder.name is not null
)
select min((
    select min(lease_until) from workflow_run where status = 'leased' and leased_by = holder.name
)) from holder where holder.name is not null
