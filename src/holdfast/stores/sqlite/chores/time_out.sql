-- :past
select id from workflow_run
where timeout_at is not null and finished_at is null and timeout_at <= :now
order by timeout_at limit :limit

-- :next
select min(timeout_at) from workflow_run where timeout_at is not null and finished_at is null
