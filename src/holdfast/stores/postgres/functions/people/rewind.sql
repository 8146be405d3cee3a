-- Go back to a step. A null step: the run begins again.
create or replace function rewind(
    run uuid, step text, tenant text, who text, with_children boolean, since bigint default null
) returns json language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    r workflow_run;
    since_seq integer;
    gone text[];
    was text;
begin
    perform lock_plan(run);
    r := locked_itself(run, tenant, 'rewind');
    perform refuse_away(r, 'rewind');
    was := r.status;
    perform refuse_changed(r, since);
    if r.status not in ('pending', 'leased', 'waiting', 'paused', 'succeeded', 'failed', 'cancelled') then
        perform refuse_move(run, 'rewind', r.status);
    end if;
    since_seq := case when rewind.step is null then 0
        else (select b.seq from begun(r) as b where b.key = rewind.step) end;
    if since_seq is null then
        perform refuse('UnknownStep', 'run ' || run || ' has no step ''' || step || '''; it has: '
                       || coalesce((select string_agg(b.key, ', ' order by b.seq) from begun(r) as b), 'none'));
    end if;
    gone := array(
        select s.key from workflow_step as s where s.run_id = rewind.run and (s.status = 'cancelled' or (
            s.seq >= since_seq and s.seq <= (select max(b.seq) from begun(r) as b)
        )) order by s.seq
    );
    r := begin_anew(r, gone, with_children, now);
    perform note(run, 'rewound', json_build_object(
        'step', step, 'forgotten', gone, 'status', r.status, 'by', who
    )::text, now);
    perform go_on_anew(r, now);
    perform hint_after(was);
    return shown(run);
end $$;

-- Lock all topics of a plan: each of its rows may be opened again, also one that is done.
create or replace function lock_plan(run uuid) returns void language plpgsql as $$
begin
    perform lock_topics(array(
        select w.tenant || U&'\001F' || s.topic
        from workflow_run as w join workflow_step as s on s.run_id = w.id
        where w.id = lock_plan.run and w.kind = 'plan' and s.topic is not null
    ));
end $$;

-- The steps that a run can go back to; for a plan, those up to the current one.
create or replace function begun(r workflow_run) returns setof workflow_step language sql stable as $$
    select s.* from workflow_step as s
    where s.run_id = r.id and (r.kind <> 'plan' or s.seq <= coalesce((
        select c.seq from workflow_step as c where c.run_id = r.id and c.status <> 'succeeded' order by c.seq limit 1
    ), s.seq))
$$;

-- Reset the run row as if the removed steps had never been written; returns the row. A paused run stays paused, and
-- will resume to pending. Removed steps must not look new: their numbers are not given again, and an item that wrote
-- one is still recognised by fence and number when it is sent again. `orphans`: children that no step names any more
-- are cancelled after this commit. Cancels of all children that an earlier cancel still owed are dropped: the next
-- execution has its own children.
create or replace function begin_anew(r workflow_run, gone text[], orphans boolean, now timestamptz)
returns workflow_run language plpgsql as $$
declare
    last workflow_step;
    is_last boolean;
    owed integer := case when orphans and exists (
        select 1 from workflow_step as s where s.run_id = r.id and s.key = any(gone) and s.child_id is not null
    ) then 4 else 0 end;
begin
    -- A gate of a plan that no item opened has no number.
    select s.* into last from workflow_step as s where s.run_id = r.id and s.number > 0 and gone <> '{}'
    order by s.fence desc, s.number desc limit 1;
    is_last := coalesce((r.commit_fence, r.commit_no) < (last.fence, last.number), false);
    update workflow_run as w
    set status = case when w.status = 'paused' then 'paused' else 'pending' end,
        resume_to = case when w.status = 'paused' then 'pending' end,
        leased_by = null, lease_until = null,
        pause_asked_by = case when w.status = 'paused' then w.pause_asked_by end, attempt = 0, crashes = 0, survived = 0, tried_of = null,
        fence = w.fence + 1,
        run_at = now, result = null, error = null, last_error = null, finished_at = null, expires_at = null,
        waiting_on = null, wait_topic = null, deadline_at = null, timeout_at = now + span(w.timeout_seconds),
        step_mark = case when gone = '{}' then w.step_mark else highest_seq(w.id, w.step_mark) end,
        commit_fence = case when is_last then last.fence else w.commit_fence end,
        commit_no = case when is_last then last.number else w.commit_no end,
        commit_answer = case when is_last then went_on(r, last) else w.commit_answer end,
        owes = w.owes & ~2 | owed, updated_at = now, rev = w.rev + 1
    where w.id = r.id
    returning w.* into r;
    perform forget_steps(r, gone);
    return r;
end $$;

-- Delete the steps with their receipts: events that only these steps took are free again. Rows of a plan become as they
-- were at the start.
create or replace function forget_steps(r workflow_run, gone text[]) returns void language plpgsql as $$
begin
    if r.kind = 'plan' then
        update workflow_step as s
        set status = 'pending', attempts = 0, output = null, error = null, cost = 0,
            topic = case when s.kind = 'event' then s.topic end, due_at = null, fence = 0, number = 0,
            started_at = null, finished_at = null, wake = null, waits = 0
        where s.run_id = r.id and s.key = any(gone);
    else
        delete from workflow_step as s where s.run_id = r.id and s.key = any(gone);
    end if;
    perform forget_receipts(r, gone);
end $$;

-- The row of a plan that is current again may be a gate.
create or replace function go_on_anew(r workflow_run, now timestamptz) returns void language plpgsql as $$
declare
    found workflow_step;
begin
    if r.kind = 'plan' and r.status = 'pending' then
        found := come_to(r, null, now);
        perform apply_plan(r, found, now, null, false);
    end if;
end $$;
