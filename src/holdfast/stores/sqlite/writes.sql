-- :strays    All runs that are leased to this worker.
select id, fence from workflow_run where status = 'leased' and leased_by = :worker order by id
