-- Open runs that have no way on; each part by the index of its status. No move leaves one behind.
select id from (
    select id from workflow_run where status = 'pending' and deleted_at is null and run_at is null
    union all
    select id from workflow_run
    where status = 'leased' and deleted_at is null and (leased_by is null or lease_until is null)
    union all
    select id from workflow_run
    where (status = 'waiting' or status = 'paused' and resume_to = 'waiting') and deleted_at is null
        and not exists (
            select 1 from workflow_step
            where run_id = workflow_run.id and status = 'waiting' and finished_at is null
                and (due_at is not null or topic is not null or kind = 'approval' or kind = 'child')
        )
    union all
    select id from workflow_run where status = 'paused' and deleted_at is null and resume_to is null
)
order by id limit :limit
