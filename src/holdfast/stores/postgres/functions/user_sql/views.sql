-- Views for SELECT by user SQL, with what the tables do not show by themselves. Columns may be added at the end. A view
-- calls no function that names another one: its body would be read with the caller's search_path, unless it has its
-- own.

-- The value as jsonb, for operators and indexes of jsonb. Null: jsonb cannot hold it, or cannot show it in bounded
-- space.
create or replace function readable(value json) returns jsonb language plpgsql immutable set search_path from current as $$
declare
    said text := value::text;
begin
    if octet_length(said) > 8388608 or form_fault(said) is not null then
        return null;
    elsif octet_length(said) > 65536 and said ~ '[0-9][eE][+-]?[0-9]{3}'  -- jsonb shows each with hundreds of digits
        and regexp_replace(said, E'"(?:[^"\\\\]|\\\\.)*"', '', 'g') ~ '[0-9][eE][+-]?[0-9]{3}' then
        return null;
    end if;
    return said::jsonb;
end $$;

-- Drop an older view that shows json: a column cannot be replaced by one of another type.
do $$
begin
    if exists (
        select 1 from pg_attribute as a
        where a.attrelid = to_regclass('workflow_run_live') and a.attname = 'payload' and a.atttypid = 'json'::regtype
    ) then
        drop view workflow_run_live;
        drop view workflow_step_live;
    end if;
end $$;

-- Runs with their cursor, and with the key as it was given. `unreadable`: the columns whose value jsonb cannot hold;
-- they are null here, and the table has them as they were written.
create or replace view workflow_run_live as
select r.id, r.tenant, r.type, r.kind, r.status, v.payload, v.result, r.last_error, v.error, r.priority, r.run_at,
    case when r.tenant = 'default' then r.idempotency_key
        else split_part(r.idempotency_key, U&'\001F', 2) end as idempotency_key,
    r.attempt, coalesce(r.tried_of, r.max_attempts) as max_attempts, r.crashes, r.leased_by, r.lease_until, r.fence,
    case when r.kind = 'plan' then coalesce(
        (select s.key from workflow_step as s where s.run_id = r.id and s.status <> 'succeeded' order by s.seq limit 1),
        (select s.key from workflow_step as s where s.run_id = r.id order by s.seq desc limit 1)
    ) else (
        select s.key from workflow_step as s
        where s.run_id = r.id and s.status in ('succeeded', 'failed') order by s.seq desc limit 1
    ) end as cursor,
    r.waiting_on, r.wait_topic, r.deadline_at, r.pause_asked_by, r.parent_id, r.limit_key, v.labels,
    r.cost, r.budget, v.progress, r.created_at, r.updated_at, r.started_at, r.finished_at,
    r.timeout_at, r.expires_at,
    array_remove(array[
        case when v.payload is null then 'payload' end,
        case when r.result is not null and v.result is null then 'result' end,
        case when r.error is not null and v.error is null then 'error' end,
        case when r.labels is not null and v.labels is null then 'labels' end,
        case when r.progress is not null and v.progress is null then 'progress' end
    ], null) as unreadable,
    case when r.kind = 'plan' then (  -- computed only when the column is asked for
        select s.seq from workflow_step as s where s.run_id = r.id and s.status <> 'succeeded' order by s.seq limit 1
    ) end as current_step_seq,
    case when r.kind = 'plan' then (
        select s.key from workflow_step as s where s.run_id = r.id and s.status <> 'succeeded' order by s.seq limit 1
    ) end as current_step_name,
    coalesce(r.chain, r.id) as chain,
    coalesce((select head.present from workflow_run as head where head.id = r.chain), r.present, r.id) as present
from workflow_run as r
cross join lateral (  -- offset: each value is read once, though it is used twice
    select readable(r.payload) as payload, readable(r.result) as result, readable(r.error) as error,
        readable(r.labels) as labels, readable(r.progress) as progress offset 0
) as v
where r.deleted_at is null;

-- Steps in their present state: the current task of a plan has its status, attempts and error from the run. A step that
-- runs for 2 s or longer is `running`, also before it has a row of its own; then its seq is null.
create or replace view workflow_step_live as
select s.run_id, s.seq, s.key as name, s.kind,
    case when g.attempt is not null then 'running' when not l.live then s.status
        when r.status = 'leased' then 'running' else 'ready' end as status,
    case when l.live then r.attempt else coalesce(g.attempt, s.attempts) end as attempts, s.max_attempts,
    case when l.live or s.status = 'ready' then r.leased_by end as leased_by,
    case when l.live or s.status = 'ready' then r.lease_until end as lease_until,
    case when (l.live or s.status = 'ready') and r.status = 'pending' then r.run_at end as run_at,
    case when s.status = 'waiting' then s.topic end as topic,
    case when s.status = 'waiting' then s.due_at end as due_at,
    v.output, v.error, s.cost, coalesce(g.started_at, s.started_at) as started_at,
    s.finished_at, s.child_id, r.tenant, r.type, r.status as run_status,
    array_remove(array[
        case when s.output is not null and v.output is null then 'output' end,
        case when (case when l.live then r.error else s.error end) is not null and v.error is null then 'error' end
    ], null) as unreadable
from workflow_step as s
join workflow_run as r on r.id = s.run_id
cross join lateral (
    select r.kind = 'plan' and r.status in ('pending', 'leased') and s.kind = 'task' and s.status = 'pending'
        and s.seq = (
            select c.seq from workflow_step as c
            where c.run_id = s.run_id and c.status <> 'succeeded' order by c.seq limit 1
        ) as live
) as l
left join lateral (
    select (one ->> 'attempt')::integer as attempt, (one ->> 'started_at')::timestamptz as started_at
    from workflow_running as w cross join lateral json_array_elements(w.steps) as one
    where s.status in ('pending', 'ready') and r.status = 'leased' and w.run_id = s.run_id and w.fence = r.fence
        and one ->> 'step' = s.key and (s.status = 'pending' or s.attempts < (one ->> 'attempt')::integer)
    limit 1
) as g on true
cross join lateral (
    select readable(s.output) as output, readable(case when l.live then r.error else s.error end) as error offset 0
) as v
where r.deleted_at is null
union all
select w.run_id, null, one ->> 'step', 'task', 'running', (one ->> 'attempt')::integer, null, r.leased_by, r.lease_until,
    null, null, null, null, null, 0, (one ->> 'started_at')::timestamptz, null, null, r.tenant, r.type, r.status,
    array[]::text[]
from workflow_running as w
join workflow_run as r on r.id = w.run_id
cross join lateral json_array_elements(w.steps) as one
where r.deleted_at is null and r.status = 'leased' and r.fence = w.fence
    and not exists (select 1 from workflow_step as s where s.run_id = w.run_id and s.key = one ->> 'step');
