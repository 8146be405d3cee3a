-- What runs owe since their last commit: 1 the parent is to be told of the end, 2 the open children are to be cancelled,
-- 4 those are that no step names any more, 8 its open waits are to be looked at.

-- :owing    Found by an index that holds nobody else. Small results come along: the parents are told them.
select id, parent_id, parent_step, iif(octet_length(result) > :small, null, result), octet_length(result) > :small
from workflow_run
where owes > 0 order by id limit :limit

-- :any_owing
select 1 from workflow_run where owes > 0 limit 1
