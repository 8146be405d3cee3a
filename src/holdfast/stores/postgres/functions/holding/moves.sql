-- The moves of a holder: the change of the run row after the steps of the item are recorded.

create or replace function counted(w writing, more integer) returns writing language plpgsql immutable as $$
begin
    if w.progress then
        w.attempt := 1;
        w.crashes := 0;
    end if;
    w.attempt := greatest(0, w.attempt + more);
    return w;
end $$;

create or replace function verdict(r workflow_run, w writing, item jsonb, status text) returns json
language plpgsql stable as $$
declare
    asked boolean := item ->> 'known' is not null;
    -- A park returns what it has just settled, also to a holder that had no open wait before.
    tells boolean := r.kind = 'code' and (asked or w.move = 'park');
    more boolean := tells and has_large_news(r.id, w.known);
begin
    return json_build_object(
        'answer', case when status = 'paused' then 'paused' else 'applied' end, 'status', status, 'kept', w.kept,
        -- The holder reads a large row of a plan itself.
        'settled', case when more or octet_length(w.news::text) > 66000 then '[]'::json
            when tells then settled_since(r.id, w.known) else coalesce(w.news, '[]'::json) end,
        'more', more,
        'seq', case when asked then highest_seq(r.id, r.step_mark) else 0 end
    );
end $$;

-- The holder goes on. The lease is renewed when less than two thirds of it are left.
create or replace function stay(r workflow_run, w writing, item jsonb, more integer, now timestamptz) returns json
language plpgsql as $$
declare
    lasts interval := span((item ->> 'lease_seconds')::double precision);
begin
    w := counted(w, more);
    if (w.lease_until - now) * 3 < lasts * 2 then
        w.lease_until := now + lasts;
    end if;
    return held(r, w, item, now);
end $$;

-- Write the run row only where something differs. An item that wrote neither a step nor a trail row must be stored in
-- the run row; otherwise it could not be recognised when it is sent again.
create or replace function held(r workflow_run, w writing, item jsonb, now timestamptz) returns json
language plpgsql as $$
declare
    answer json := verdict(r, w, item, 'leased');
    retried boolean := w.move = 'retry';
begin
    if w.silent or json_array_length(w.kept) > 0 or w.cost > 0 or item ->> 'progress' is not null
        or w.started_at is not null or w.move <> 'checkpoint' or w.attempt <> r.attempt or w.crashes <> r.crashes
        or (w.progress and r.survived <> 0)
        or w.lease_until <> r.lease_until then
        update workflow_run as x
        set attempt = w.attempt, crashes = w.crashes, survived = case when w.progress then 0 else x.survived end,
            lease_until = w.lease_until, cost = x.cost + w.cost,
            progress = coalesce((item ->> 'progress')::json, x.progress),
            error = case when retried then (item ->> 'error')::json else x.error end,
            last_error = case when retried then item ->> 'last_error' else x.last_error end,
            started_fence = w.started_fence, started_at = coalesce(x.started_at, w.started_at), commit_fence = r.fence,
            commit_no = w.number, commit_answer = answer::text, updated_at = now, rev = x.rev + 1
        where x.id = r.id;
    end if;
    return answer;
end $$;

-- Give the run back: with the status of the move, or paused if a pause was asked for.
create or replace function leave(
    r workflow_run, w writing, item jsonb, status text, refund integer, run_at timestamptz, wait workflow_step,
    now timestamptz
) returns json language plpgsql as $$
declare
    lands text := status;
    retried boolean := w.move = 'retry';
    answer json;
begin
    w := counted(w, -refund);
    if w.pause_by is not null then
        lands := 'paused';
        perform note(r.id, 'paused', paused_data(r, w, item), now);
    end if;
    answer := verdict(r, w, item, lands);
    update workflow_run as x
    set status = lands, resume_to = case when w.pause_by is not null then leave.status end,
        run_at = coalesce(leave.run_at, x.run_at), leased_by = null, lease_until = null, pause_asked_by = w.pause_by,
        waiting_on = wait.kind, wait_topic = wait.topic, deadline_at = wait.due_at, attempt = w.attempt,
        crashes = w.crashes, survived = case when w.progress then 0 else x.survived end, cost = x.cost + w.cost, progress = coalesce((item ->> 'progress')::json, x.progress),
        error = case when retried then (item ->> 'error')::json else x.error end,
        last_error = case when retried then item ->> 'last_error' else x.last_error end,
        started_fence = w.started_fence, started_at = coalesce(x.started_at, w.started_at), commit_fence = r.fence,
        commit_no = w.number, commit_answer = answer::text, updated_at = now, rev = x.rev + 1,
        trace = case when item ->> 'trace' is null then x.trace else nullif(item ->> 'trace', '') end
    where x.id = r.id;
    return answer;
end $$;

-- The data of the trail row of a run that failed. Crashes do not use up attempts.
create or replace function failed_data(kind text, message text, attempt integer, crashes integer, most integer)
returns text language sql immutable as $$
    select json_build_object('kind', kind, 'message', message, 'attempt', greatest(0, attempt - crashes),
                             'max_attempts', most)::text
$$;

-- End the run, with a result, or with an error, its text on one line, and its kind.
create or replace function finish(
    r workflow_run, w writing, item jsonb, status text, result json, error json, line text, kind text,
    run_at timestamptz, now timestamptz
) returns json language plpgsql as $$
declare
    answer json;
    most integer;
begin
    if item ->> 'attempt' is not null then  -- it failed by a step, whose tries are shown
        w.attempt := (item ->> 'attempt')::integer + w.crashes;
        most := (item ->> 'max_attempts')::integer;
    end if;
    perform end_steps(r, status, error, greatest(0, w.attempt - w.crashes), now);
    answer := verdict(r, w, item, status);
    update workflow_run as x
    set status = finish.status, tried_of = most, run_at = coalesce(finish.run_at, x.run_at), result = finish.result,
        error = finish.error, last_error = line, finished_at = now, expires_at = now + span(x.ttl_seconds),
        leased_by = null, lease_until = null, pause_asked_by = null, attempt = w.attempt, crashes = w.crashes,
        cost = x.cost + w.cost, owes = case when x.parent_step is null then x.owes else x.owes | 1 end,
        progress = coalesce((item ->> 'progress')::json, x.progress), started_fence = w.started_fence,
        started_at = coalesce(x.started_at, w.started_at), commit_fence = r.fence, commit_no = w.number,
        commit_answer = answer::text, updated_at = now, rev = x.rev + 1
    where x.id = r.id;
    perform note(r.id, status, case when status = 'failed'
        then failed_data(kind, line, w.attempt, w.crashes, coalesce(most, r.max_attempts)) else '{}' end, now);
    return answer;
end $$;

create or replace function park(r workflow_run, w writing, item jsonb, current workflow_step, now timestamptz)
returns json language plpgsql as $$
declare
    first workflow_step;
    news boolean;
begin
    perform look_at_all(r, now);
    select * into first from open_waits(r.id) limit 1;
    -- Without an open wait nothing could ever wake the run. The waits that were settled already are in `kept`.
    news := first.key is null
        or (r.kind = 'code' and has_settled(r.id, w.known));
    if news and current.key is not null then
        w.progress := true;
        w.news := json_build_array(step_record(step_named(r.id, current.key)));
    end if;
    if w.pause_by is not null then
        return leave(r, w, item, case when news then 'pending' else 'waiting' end, 1, case when news then now end,
                     case when not news then first end, now);
    end if;
    if news then
        return held(r, counted(w, 0), item, now);
    end if;
    -- The last `waiting` row of this commit says that the run waits. Without one, another row is written.
    if w.opened is null then
        perform note(r.id, opening(first.kind), '{"step":' || to_json(first.key)::text || ',"kind":"' || first.kind
                     || '","status":"waiting"}', now);
    else
        perform lead_to(w.opened, 'waiting');
    end if;
    return leave(r, w, item, 'waiting', 1, null, first, now);
end $$;

create or replace function retry(r workflow_run, w writing, item jsonb, now timestamptz) returns json
language plpgsql as $$
declare
    stays boolean := (item ->> 'in_place')::boolean and w.pause_by is null;
    delay double precision := coalesce((item ->> 'delay_seconds')::double precision, 0);
    refund integer := case when (item ->> 'refund')::boolean then 1 else 0 end;
    rest text := ',"delay":' || to_json(delay)::text || ',"error":' || coalesce(item ->> 'error', 'null')
        || case when stays or w.pause_by is not null then '' else ',"status":"pending"' end || '}';
    step jsonb;
begin
    for step in
        select s.value from jsonb_array_elements(item -> 'steps') with ordinality as s (value, place)
        where s.value ->> 'status' = 'ready' and s.value ->> 'key' = any(w.ready) order by s.place
    loop
        perform note(r.id, 'retried', '{"step":' || to_json(step ->> 'key')::text || ',"attempt":'
            || coalesce(step ->> 'attempts', '1') || ',"max_attempts":'
            || coalesce(step ->> 'max_attempts', r.max_attempts::text) || rest, now);
    end loop;
    if w.ready = '{}' then
        perform note(r.id, 'retried', '{"attempt":' || greatest(0, w.attempt - w.crashes - refund) || ',"max_attempts":'
            || r.max_attempts || rest, now);
    end if;
    if stays then
        return stay(r, w, item, 1 - refund, now);
    end if;
    if item ->> 'known' is not null and has_settled(r.id, w.known) then
        delay := 0;
    end if;
    return leave(r, w, item, 'pending', refund, now + span(delay), null, now);
end $$;

-- A step of a plan is done. The next row decides: the holder goes on with it here, it is opened, or the run has ended.
create or replace function advance(r workflow_run, w writing, item jsonb, current workflow_step, now timestamptz)
returns json language plpgsql as $$
declare
    next workflow_step;
begin
    select * into next from workflow_step as s where s.run_id = r.id and s.seq > current.seq order by s.seq limit 1;
    if next.key is null then
        return end_plan(r, w, item, null, (item ->> 'result')::json, null, now);
    end if;
    if next.status <> 'pending' then
        return end_plan(r, w, item, next, null, null, now);  -- no row of this engine: drift
    end if;
    if w.pause_by is not null then
        return leave(r, w, item, 'pending', 1, now, null, now);
    end if;
    next := come_to(r, step_named(r.id, current.key), now);
    if next.key is null or next.status not in ('waiting', 'pending') then
        return end_plan(r, w, item, next, null, null, now);
    end if;
    if next.status = 'waiting' then
        return leave(r, w, item, 'waiting', 1, null, next, now);
    end if;
    if (item ->> 'in_place')::boolean then
        w.news := json_build_array(step_record(next));
        return stay(r, w, item, 0, now);
    end if;
    perform lead_to(w.done, 'pending');
    return leave(r, w, item, 'pending', 1, now, null, now);
end $$;

-- A run that was started before its plan was published: insert its rows now, and give the run back.
create or replace function begin_plan(r workflow_run, w writing, item jsonb, now timestamptz) returns json
language plpgsql as $$
declare
    next workflow_step;
begin
    if become_plan(r, (item -> 'plan')::json, now) then
        r.kind := 'plan';
    end if;
    perform note(r.id, 'released', '{}', now);
    if w.pause_by is not null or r.kind <> 'plan' then
        return leave(r, w, item, 'pending', 1, now, null, now);
    end if;
    next := come_to(r, null, now);
    if next.status = 'pending' then
        return leave(r, w, item, 'pending', 1, now, null, now);
    end if;
    w.attempt := 0;
    w.crashes := 0;
    if next.key is null or next.status <> 'waiting' then
        return end_plan(r, w, item, next, null, now, now);
    end if;
    return leave(r, w, item, 'waiting', 0, now, next, now);
end $$;

-- End a plan: all rows are done, or one row is not valid. Only a task that is the last row has a result.
create or replace function end_plan(
    r workflow_run, w writing, item jsonb, next workflow_step, result json, run_at timestamptz, now timestamptz
) returns json language plpgsql as $$
declare
    why json;
begin
    w := counted(w, 0);
    if next.key is null then
        return finish(r, w, item, 'succeeded', result, null, null, null, run_at, now);
    end if;
    why := why_failed(next);
    return finish(r, w, item, 'failed', null, why, (why ->> 'kind') || ': ' || (why ->> 'message'), why ->> 'kind',
                  run_at, now);
end $$;
