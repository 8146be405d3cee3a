-- The bits of `owes`, set by the last commit of a run: 1 tell the parent about the end, 2 cancel the open children,
-- 4 cancel the children that no step names any more, 8 look at the open waits of the run, 16 delete or restore its chain, 32 resume
-- the runs that its new budget covers.

-- :owing    By an index of these runs only. Small results are read along, because parents are told them.
select id, parent_id, parent_step, iif(octet_length(result) > :small, null, result), octet_length(result) > :small
from workflow_run
where owes > 0 order by id limit :limit

-- :any_owing
select 1 from workflow_run where owes > 0 limit 1
