-- :is_there
select 1 from workflow_run where id = ? and deleted_at is null

-- :trail
select event.id, event.workflow_id, event.event_type, event.data, event.created_at
from workflow_event as event where $terms order by event.id limit ?

-- :is_whole    Without the remains of runs that a purge has begun to remove (-1).
event.workflow_id not in (select id from workflow_run where deleted_at = -1)

-- :is_of_tenant
exists (select 1 from workflow_run where id = event.workflow_id and tenant = ? and deleted_at is null)

-- :followed    The runs of a list that have news, in its order. A left join: SQLite cannot begin with all runs.
select asked.value ->> 0 as run, asked.value ->> 1 as after, run.tenant, run.status,
    coalesce((select present from workflow_run as first where first.id = run.chain), run.present, run.id) as newest,
    exists (
        select 1 from workflow_event as event where event.workflow_id = run.id and event.id > asked.value ->> 1
    ) as has_rows
from json_each(:runs) as asked left join workflow_run as run on run.id = asked.value ->> 0
    and run.deleted_at is null and coalesce(run.tenant = :tenant, true)
where run.id is null or run.finished_at is not null or newest <> run.id or has_rows
order by asked.key

-- :later    The rows of one run.
select id, workflow_id, event_type, data, created_at from workflow_event
where workflow_id = :run and id > :after order by id limit :limit

-- :last    The highest number that was ever given, also to rows that are purged.
select coalesce((select seq from sqlite_sequence where name = 'workflow_event'), 0)

-- :scanned    The rows that one page looks at: the last of them, and how many they are.
select max(id), count(*) from (select id from workflow_event where id > :after order by id limit :rows)
