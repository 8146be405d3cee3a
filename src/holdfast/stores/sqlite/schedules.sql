-- :columns
id, name, tenant, type, payload, cron, zone, every_us, anchor_at, jitter_us, overlap, catch_up, priority, max_attempts,
timeout_seconds, ttl_seconds, budget, limit_key, labels, paused, paused_by, next_at, waiting, fired, skipped, last_at,
last_run, last_skipped_at, last_missed_at, rev, created_at, updated_at

-- :one
select $columns from workflow_schedule where tenant = :tenant and name = :name

-- :list
select $columns from workflow_schedule
where (:tenant is null or tenant = :tenant) and (:name is null or name = :name)
    and (:after_tenant is null or (tenant, name) > (:after_tenant, :after_name))
order by tenant, name limit :limit

-- :due
select $columns from workflow_schedule
where id in (
        select id from workflow_schedule where paused = 0 and next_at is not null and next_at <= :now
        union all
        select id from workflow_schedule as line where waiting is not null and paused = 0 and not $is_open
    )
    and (:after is null or id > :after)
order by id limit :limit

-- :next    A queued time that can start its run is due at once, whatever the clock says.
select iif(
    exists (select 1 from workflow_schedule as line where waiting is not null and paused = 0 and not $is_open),
    0,
    (select min(next_at) from workflow_schedule where paused = 0 and next_at is not null)
)

-- :next_besides    The same without some schedules, each at one revision.
select iif(
    exists (
        select 1 from workflow_schedule as line
        where waiting is not null and paused = 0 and not $left_out and not $is_open
    ),
    0,
    (
        select next_at from workflow_schedule as line
        where paused = 0 and next_at is not null and not $left_out
        order by next_at limit 1
    )
)

-- :left_out
exists (select 1 from json_each(:besides) where value ->> 0 = line.id and value ->> 1 = line.rev)

-- :is_open
exists (
    select 1 from workflow_firing join workflow_run as first on first.id = run_id
    join workflow_run as run on run.id = coalesce(first.present, first.id)
    where schedule_id = line.id and run.finished_at is null and run.deleted_at is null
)

-- :open
select $is_open from (select :id as id) as line

-- :insert
insert into workflow_schedule (
    name, id, tenant, type, payload, cron, zone, every_us, anchor_at, next_at, jitter_us, overlap, catch_up, priority,
    max_attempts, timeout_seconds, ttl_seconds, budget, limit_key, labels, created_at, updated_at
)
values (
    :name, :id, :tenant, :type, :params, :cron, :zone, :every_us, :anchor_at, :next_at, :jitter_us, :overlap,
    :catch_up, :priority, :max_attempts, :timeout_seconds, :ttl_seconds, :budget, :limit_key, :labels, :now, :now
)

-- :update
update workflow_schedule
set type = :type, payload = :params, cron = :cron, zone = :zone, every_us = :every_us, anchor_at = :anchor_at,
    next_at = :next_at, jitter_us = :jitter_us, overlap = :overlap, catch_up = :catch_up, priority = :priority,
    max_attempts = :max_attempts, timeout_seconds = :timeout_seconds, ttl_seconds = :ttl_seconds, budget = :budget,
    limit_key = :limit_key, labels = :labels, rev = rev + 1, updated_at = :now
where tenant = :tenant and name = :name

-- :remove
delete from workflow_schedule where tenant = :tenant and name = :name returning id

-- :remove_runs
delete from workflow_firing where schedule_id = :id

-- :pause
update workflow_schedule set paused = 1, paused_by = :by, rev = rev + 1, updated_at = :now
where tenant = :tenant and name = :name and paused = 0

-- :resume
update workflow_schedule set paused = 0, paused_by = null, next_at = :next_at, rev = rev + 1, updated_at = :now
where tenant = :tenant and name = :name and paused = 1 and rev = :rev

-- :seen    The schedule, if it still has the revision that the keeper saw.
select overlap, waiting from workflow_schedule
where tenant = :tenant and name = :name and id = :id and rev = :rev and (paused = 0 or :by = 'hand')

-- :there
select id, tenant, labels from workflow_run where id in (select value from json_each(:ids))

-- :forget_ended    Looks at :limit runs only, so a firing costs the same however many are open.
delete from workflow_firing
where schedule_id = :id
    and run_id in (select run_id from workflow_firing where schedule_id = :id order by run_id limit :limit)
    and not exists (
        select 1 from workflow_run as first join workflow_run as run on run.id = coalesce(first.present, first.id)
        where first.id = run_id and run.finished_at is null
    )

-- :add_run
insert or ignore into workflow_firing (schedule_id, run_id) values (:id, :run)

-- :started
update workflow_schedule set fired = fired + 1, last_at = :at, last_run = :run where id = :id

-- :skipped
update workflow_schedule set skipped = skipped + 1, last_skipped_at = :at where id = :id

-- :missed
update workflow_schedule set last_missed_at = :at where id = :id

-- :move_on
update workflow_schedule set next_at = :next_at where id = :id

-- :moved
update workflow_schedule set waiting = :waiting, rev = rev + 1, updated_at = :now where id = :id
