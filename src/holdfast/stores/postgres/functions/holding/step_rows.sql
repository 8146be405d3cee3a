-- The step rows of a commit. A recorded outcome never changes; an open step may get its outcome.

create or replace function record_steps(r workflow_run, w writing, item jsonb, now timestamptz) returns writing
language plpgsql as $$
declare
    step jsonb;
    there workflow_step;
    kept json[] := '{}';
    wanted text;
    child jsonb;
    children jsonb[] := '{}';
    is_family boolean := 16 < (
        select count(*) from jsonb_array_elements(item -> 'steps') as x where jsonb_typeof(x.value -> 'child') = 'object'
    );
begin
    w.cost := 0;
    w.progress := false;
    w.silent := true;
    w.ready := '{}';
    for step in select value from jsonb_array_elements(item -> 'steps') loop
        wanted := step ->> 'status';
        there := step_named(r.id, step ->> 'key');
        if wanted = 'cancelled' then
            continue when there.key is null;
            perform forget_receipts(r, array[there.key]);
        elsif there.status in ('succeeded', 'failed')
            or (there.status = 'cancelled' and wanted <> 'waiting') then
            kept := kept || json_build_array(there.key, there.output::text);
            continue;
        elsif there.status = 'waiting' and wanted not in ('succeeded', 'failed') then
            continue;
        end if;
        if jsonb_typeof(step -> 'child') = 'object' then
            child := (step -> 'child') || jsonb_build_object('parent', r.id, 'parent_step', step ->> 'key');
            perform note(r.id, 'child_started', '{"step":' || to_json(step ->> 'key')::text || ',"child":"'
                         || (child ->> 'id') || '"}', now);
            if is_family then  -- many children are started at once, after the last step
                children := array_append(children, child);
            else
                perform start_runs(jsonb_build_array(child)::json, null, now, false);
            end if;
        end if;
        w.cost := w.cost + coalesce((step ->> 'cost')::bigint, 0);
        if r.kind <> 'plan' then
            w.seq := w.seq + 1;
            perform put_step(r, w, step, now);
        elsif wanted = 'ready' then
            -- A failed try of a plan's task: the reason of its call stays, and its cost is added.
            update workflow_step as s set cost = s.cost + coalesce((step ->> 'cost')::bigint, 0)
            where s.ctid = step_place(r.id, step ->> 'key');
        else
            perform update_step(r, w, step, now);
        end if;
        w := tell(r, w, step, now);
    end loop;
    if children <> '{}' then
        perform start_runs(array_to_json(children), null, now, false);
    end if;
    w.kept := array_to_json(kept);
    return w;
end $$;

create or replace function due_of(step jsonb, now timestamptz) returns timestamptz language sql stable as $$
    select coalesce(moment((step ->> 'due_at')::bigint), now + span((step ->> 'delay_seconds')::double precision))
$$;

-- A new row, or the outcome of an open one: it gets the next number, and its cost is added.
create or replace function put_step(r workflow_run, w writing, step jsonb, now timestamptz) returns void
language plpgsql as $$
declare
    ends boolean := step ->> 'status' in ('succeeded', 'failed', 'cancelled');
    is_child boolean := step ->> 'kind' = 'child' and step ->> 'status' = 'waiting';
begin
    insert into workflow_step as s (
        run_id, seq, key, kind, status, attempts, output, error, cost, tenant, topic, due_at, since_mark, fence,
        number, started_at, finished_at, ask, digest, on_timeout, child_id, waits
    )
    values (
        r.id, w.seq, step ->> 'key', step ->> 'kind', step ->> 'status', coalesce((step ->> 'attempts')::integer, 1),
        (step ->> 'output')::json, (step ->> 'error')::json, coalesce((step ->> 'cost')::bigint, 0), r.tenant,
        step ->> 'topic', due_of(step, now),
        case when (step ->> 'since_now')::boolean then inbox_mark() else 0 end, r.fence, w.number,
        case when step ->> 'kind' = 'approval' then now else moment((step ->> 'started_at')::bigint) end,
        case when ends then now end, (step ->> 'ask')::json, step ->> 'digest',
        coalesce(step ->> 'on_timeout', 'reject'),
        (case when jsonb_typeof(step -> 'child') = 'object' then step -> 'child' ->> 'id' end)::uuid, is_child::integer
    )
    on conflict (run_id, key) do update
    set seq = excluded.seq, kind = excluded.kind, status = excluded.status, attempts = excluded.attempts,
        output = excluded.output, error = excluded.error, cost = s.cost + excluded.cost, topic = excluded.topic,
        due_at = excluded.due_at, fence = excluded.fence, number = excluded.number,
        started_at = excluded.started_at, finished_at = excluded.finished_at, ask = excluded.ask,
        digest = excluded.digest, on_timeout = excluded.on_timeout,
        child_id = coalesce(excluded.child_id, s.child_id), waits = s.waits + excluded.waits;
end $$;

-- A row of a plan exists since the start, and keeps its number.
create or replace function update_step(r workflow_run, w writing, step jsonb, now timestamptz) returns void
language plpgsql as $$
declare
    is_wait boolean := step ->> 'status' = 'waiting';
begin
    update workflow_step as s
    set status = step ->> 'status', attempts = coalesce((step ->> 'attempts')::integer, 1), wake = null,
        output = (step ->> 'output')::json, error = (step ->> 'error')::json,
        cost = s.cost + coalesce((step ->> 'cost')::bigint, 0), fence = r.fence, number = w.number,
        started_at = moment((step ->> 'started_at')::bigint), finished_at = case when not is_wait then now end,
        waits = s.waits + is_wait::integer,
        due_at = case when is_wait then due_of(step, now) else s.due_at end,
        topic = case when is_wait then step ->> 'topic' else s.topic end
    where s.ctid = step_place(r.id, step ->> 'key');
end $$;

create or replace function tell(r workflow_run, w writing, step jsonb, now timestamptz) returns writing
language plpgsql as $$
declare
    named text := '{"step":' || to_json(step ->> 'key')::text;
begin
    case step ->> 'status'
        when 'succeeded' then
            w.done := note(r.id, 'step_succeeded', named || '}', now);
            w.progress := true;
        when 'failed' then
            perform note(r.id, 'step_failed', named || ',"error":' || coalesce(step ->> 'error', 'null') || '}', now);
            w.progress := true;
        when 'waiting' then
            w.opened := note(r.id, opening(step ->> 'kind'), named || ',"kind":"' || (step ->> 'kind') || '"}', now);
            w.opened_key := step ->> 'key';
            w.opened_kind := step ->> 'kind';
        when 'cancelled' then
            perform note(r.id, 'cancelled', named || '}', now);
        else
            w.ready := w.ready || (step ->> 'key');
            return w;
    end case;
    w.silent := false;
    return w;
end $$;

-- The trail's word for a wait that is opened.
create or replace function opening(kind text) returns text language sql immutable as
    $$select case when kind = 'approval' then 'approval_opened' else 'waiting' end$$;
