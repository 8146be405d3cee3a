-- Plans: their rows, and the single way in which a run goes on from row to row. All rows exist from the start. The
-- current row is the first that has not succeeded. A task waits for a worker; any other kind is opened here, and looked
-- at at once. The caller holds the row of the run and the buckets of its open topics (lock_waits).

-- Insert all rows of a plan; their order is their number, from 0.
create or replace function insert_plan(run uuid, steps json, tenant text, max_attempts integer) returns void
language plpgsql as $$
begin
    insert into workflow_step (
        run_id, seq, key, kind, status, max_attempts, tenant, topic, timeout_seconds, ask, digest, on_timeout
    )
    select run, one.number - 1, one.step ->> 'name', coalesce(one.step ->> 'kind', 'task'), 'pending',
        case when coalesce(one.step ->> 'kind', 'task') = 'task' then
            coalesce(nullif((one.step ->> 'max_attempts')::integer, 0), insert_plan.max_attempts) end,
        insert_plan.tenant, one.step ->> 'topic',
        bounded((one.step ->> 'timeout_seconds')::double precision),
        (one.step ->> 'ask')::json, one.step ->> 'digest', coalesce(one.step ->> 'on_timeout', 'reject')
    from json_array_elements(steps) with ordinality as one (step, number);
end $$;

-- Insert rows for a run that was started before its plan was published; a run that has rows is left alone. Returns
-- whether rows were inserted.
create or replace function become_plan(r workflow_run, steps json, now timestamptz) returns boolean
language plpgsql as $$
begin
    if coalesce(json_array_length(steps), 0) = 0
        or exists (select 1 from workflow_step as s where s.run_id = r.id) then
        return false;
    end if;
    update workflow_run as w set kind = 'plan', updated_at = now, rev = w.rev + 1 where w.id = r.id;
    perform insert_plan(r.id, steps, r.tenant, r.max_attempts);
    perform note(r.id, 'step_added', json_build_object('step', s.key)::text, now)
    from (select w.key from workflow_step as w where w.run_id = r.id order by w.seq) as s;
    return true;
end $$;

create or replace function step_named(run uuid, key text) returns workflow_step language plpgsql
set enable_sort = off as $$
declare
    s workflow_step;
begin
    select w.* into s from workflow_step as w
    where w.run_id = run and w.key >= step_named.key and w.key <= step_named.key order by w.key limit 1;
    return s;
end $$;

-- The position of a step's row. Only the session that holds the run's row writes it, so it does not move meanwhile.
create or replace function step_place(run uuid, key text) returns tid language plpgsql stable
set enable_sort = off as $$
begin
    return (
        select w.ctid from workflow_step as w
        where w.run_id = run and w.key >= step_place.key and w.key <= step_place.key order by w.key limit 1
    );
end $$;

-- The first step that has not succeeded.
create or replace function current_step(run uuid) returns workflow_step language plpgsql as $$
declare
    s workflow_step;
begin
    select w.* into s from workflow_step as w where w.run_id = run and w.status <> 'succeeded' order by w.seq limit 1;
    return s;
end $$;

-- The same for a held run of which nothing has failed: by the index of open steps, however many steps are done.
create or replace function open_step(run uuid) returns workflow_step language plpgsql as $$
declare
    s workflow_step;
begin
    select w.* into s from workflow_step as w where w.run_id = run and w.finished_at is null order by w.seq limit 1;
    return s;
end $$;

-- Make the row after `done` current (null: the first that has not succeeded). Gates and waits on the way are opened
-- until a row stops the run: a task that is to be called, a wait that is open, a row that has failed or is not valid.
-- No row: all are done.
create or replace function come_to(r workflow_run, done workflow_step, now timestamptz) returns workflow_step
language plpgsql as $$
declare
    s workflow_step := done;
    opened bigint;
begin
    while s.status is distinct from 'failed' loop
        if s.seq is null then
            s := current_step(r.id);
        else
            select w.* into s from workflow_step as w where w.run_id = r.id and w.seq > s.seq order by w.seq limit 1;
        end if;
        exit when s.seq is null or s.status <> 'pending' or s.kind = 'task';
        opened := note(
            r.id, case s.kind when 'approval' then 'approval_opened' else 'waiting' end,
            '{"step":' || to_json(s.key) || ',"kind":' || to_json(s.kind) || '}', now
        );
        update workflow_step as w
        set status = 'waiting', started_at = now, fence = r.fence, due_at = now + span(w.timeout_seconds)
        where w.ctid = step_place(r.id, s.key) returning w.* into s;
        if look(r, s, now) is null then
            perform lead_to(opened, 'waiting');
            exit;
        end if;
        s := step_named(r.id, s.key);
    end loop;
    return s;
end $$;

-- Apply the current row to a run that nobody holds; returns its new status. Counts start again, unless they are to
-- stay; run_at does not become earlier.
create or replace function apply_plan(
    r workflow_run, at workflow_step, now timestamptz, run_at timestamptz, counts_stay boolean
) returns text language plpgsql as $$
#variable_conflict use_column
declare
    to_status text;
    why json;
    line text;
    waits boolean := at.status = 'waiting';
begin
    if at.status in ('waiting', 'pending') then
        update workflow_run as w
        set status = at.status, resume_to = null, run_at = greatest(w.run_at, apply_plan.run_at),
            waiting_on = case when waits then at.kind end, wait_topic = case when waits then at.topic end,
            deadline_at = case when waits then at.due_at end,
            attempt = case when counts_stay then w.attempt else 0 end,
            crashes = case when counts_stay then w.crashes else 0 end,
            survived = case when counts_stay then w.survived else 0 end, updated_at = now, rev = w.rev + 1
        where w.id = r.id;
        return at.status;
    end if;
    to_status := case when at.seq is null then 'succeeded' else 'failed' end;
    if to_status = 'failed' then
        why := why_failed(at);
        line := told_in_a_line(why);
    end if;
    perform end_steps(r, to_status, why, 0, now);
    update workflow_run as w
    set status = to_status, resume_to = null, run_at = greatest(w.run_at, apply_plan.run_at), waiting_on = null,
        wait_topic = null, deadline_at = null, error = why, last_error = line,
        attempt = case when counts_stay then w.attempt else 0 end,
        crashes = case when counts_stay then w.crashes else 0 end,
        survived = case when counts_stay then w.survived else 0 end, finished_at = now,
        expires_at = now + span(w.ttl_seconds), owes = case when w.parent_step is null then w.owes else w.owes | 1 end,
        updated_at = now, rev = w.rev + 1
    where w.id = r.id;
    perform note(r.id, to_status, case when why is null then '{}' else
        failed_data(why ->> 'kind', line, 0, 0, r.max_attempts) end, now);
    return to_status;
end $$;

create or replace function told_in_a_line(why json) returns text language sql immutable as $$
    select (why ->> 'kind') || ': ' || coalesce(why ->> 'message', '')
$$;

-- A failed row fails its run. Any other row that is not pending was not written by this engine.
create or replace function why_failed(s workflow_step) returns json language plpgsql immutable as $$
begin
    return case when s.status = 'failed' and s.error is not null then s.error else
        blame('drift', 'step ' || quoted(s.key) || ' is ' || s.status || ', though it has not begun', s.key) end;
end $$;

-- Open steps end with their run. For a plan the current step too: it fails with the run, or is cancelled with all steps
-- behind it.
create or replace function end_steps(r workflow_run, status text, error json, attempt integer, now timestamptz)
returns void language plpgsql as $$
#variable_conflict use_column
declare
    s workflow_step;
begin
    if r.kind = 'plan' and end_steps.status = 'failed' then
        s := current_step(r.id);
        if s.status not in ('failed', 'cancelled') then
            update workflow_step as w
            set status = 'failed', error = end_steps.error, attempts = end_steps.attempt, finished_at = now
            where w.ctid = step_place(r.id, s.key);
            perform note(r.id, 'step_failed', '{"step":' || to_json(s.key) || ',"error":'
                         || coalesce(end_steps.error, 'null') || '}', now);
        end if;
    end if;
    update workflow_step as w set status = 'cancelled', finished_at = now
    where w.run_id = r.id and w.finished_at is null
        and (w.status in ('ready', 'waiting') or end_steps.status = 'cancelled');
end $$;

-- Add a task behind the last row of an open plan. If the same task was added before, and that answer was lost, the
-- first answer is returned again.
create or replace function append_step(run uuid, name text, max_attempts integer, tenant text) returns json
language plpgsql set search_path from current set enable_seqscan = off as $$
#variable_conflict use_column
declare
    now timestamptz := clock();
    r workflow_run;
    s workflow_step;
    tries integer;
begin
    select w.* into r from workflow_run as w
    where w.id = append_step.run and w.deleted_at is null and w.tenant = coalesce(append_step.tenant, w.tenant)
    for no key update;
    if r.id is null then
        perform refuse_unknown(append_step.run);
    elsif r.finished_at is not null then
        perform refuse_move(r.id, 'append_step', r.status);
    elsif r.kind <> 'plan' then
        perform refuse('Conflict', 'run ' || r.id || ' is no plan: its steps are what its code asks for');
    end if;
    tries := coalesce(nullif(append_step.max_attempts, 0), r.max_attempts);
    insert into workflow_step (run_id, seq, key, kind, status, max_attempts, tenant, on_timeout)
    values (r.id, 1 + highest_seq(r.id, r.step_mark), append_step.name, 'task', 'pending', tries, r.tenant, 'reject')
    on conflict (run_id, key) do nothing returning * into s;
    if s.seq is not null then
        perform note(r.id, 'step_added', json_build_object('step', s.key)::text, now);
        perform hint();
        return step_record(s);
    end if;
    s := step_named(r.id, append_step.name);
    if s.kind <> 'task' or s.status <> 'pending' or s.max_attempts is distinct from tries
        or exists (select 1 from workflow_step as w where w.run_id = r.id and w.seq > s.seq)
        or not exists (
            select 1 from workflow_event as e
            where e.workflow_id = r.id and e.event_type = 'step_added' and e.data ->> 'step' = s.key
        )
    then
        perform refuse('Conflict', 'run ' || r.id || ' has a step ' || quoted(s.key)
                       || ' already: give the new one another name');
    end if;
    return step_record(s);
end $$;
