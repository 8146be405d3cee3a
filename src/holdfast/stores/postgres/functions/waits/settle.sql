-- The single way in which a wait gets its outcome. A wait is settled once, by whoever notices first: a park that looks,
-- a keeper that finds it due, an event that comes, a child that ends, a person who decides. The caller holds the row of
-- the run and the bucket of the wait's topic (for a plan the buckets of all its open topics, plan_run_topics), and has
-- read both rows after that.

-- The number of bytes of values that a commit with many settled waits copies at most. A single value may be larger.
create or replace function slice_bytes() returns integer language sql immutable as 'select 8388608';

-- True when news make the run continue. A paused or deleted run finds them later.
create or replace function is_reached(r workflow_run) returns boolean language sql immutable as $$
    select r.status <> 'paused' and r.deleted_at is null
$$;

-- True when an outcome of this wait puts its run back into the queue at once. A plan looks at its next row first.
create or replace function wakes(r workflow_run, s workflow_step) returns boolean language sql immutable as $$
    select r.status = 'waiting' and (r.kind <> 'plan' or s.kind = 'task')
$$;

-- The status that the trail row of such an outcome names.
create or replace function led(r workflow_run, s workflow_step) returns text language sql immutable as $$
    select case when wakes(r, s) then ',"status":"pending"}' else '}' end
$$;

create or replace function blame(kind text, message text, step text) returns json language sql immutable as $$
    select ('{"kind":' || to_json(kind) || ',"message":' || to_json(message)
            || coalesce(',"step":' || to_json(step), '') || '}')::json
$$;

-- Settle the wait if possible. Returns the id of its trail row, otherwise null.
create or replace function look(r workflow_run, s workflow_step, now timestamptz) returns bigint language plpgsql as $$
declare
    seen record;
begin
    seen := look_at(r, s, now);
    perform count_woken(r, seen.came, 1);
    return seen.entry;
end $$;

-- Settle the wait if possible, and tell the run. True: the awaited thing has come, and reached the run. False: the wait
-- timed out, or the run is paused or deleted. Null: not yet.
create or replace function settle(r workflow_run, s workflow_step, now timestamptz) returns boolean
language plpgsql as $$
declare
    seen record;
begin
    seen := look_at(r, s, now);
    if seen.entry is null then
        return null;
    end if;
    perform count_woken(r, seen.came, 1);
    perform go_on(r, s, seen.entry, now);
    return is_reached(r) and seen.came is not null;
end $$;

-- The position of an event's row. The caller holds the bucket of its topic, so the row does not move meanwhile.
create or replace function event_place(seq bigint) returns tid language plpgsql stable
set enable_sort = off as $$
begin
    return (
        select i.ctid from workflow_inbox as i
        where i.seq >= event_place.seq and i.seq <= event_place.seq order by i.seq limit 1
    );
end $$;

create or replace function count_woken(r workflow_run, event bigint, runs integer) returns void language plpgsql as $$
begin
    if event > 0 and is_reached(r) then
        update workflow_inbox as i set woken = i.woken + runs where i.ctid = event_place(event);
    end if;
end $$;

-- `entry`: the trail row, if the wait is settled. `came`: the event that it took, 0 for a child, null for a timeout.
-- `copied`: how many bytes of values were copied.
create or replace function look_at(
    r workflow_run, s workflow_step, now timestamptz, out entry bigint, out came bigint, out copied integer
) language plpgsql as $$
declare
    event workflow_inbox;
begin
    copied := 0;
    if s.kind in ('event', 'task') and s.topic is not null then
        event := available(r, s);
        if event.seq is not null then
            came := event.seq;
            copied := octet_length(event.payload::text);
            entry := take(r, s, event, now);
            return;
        end if;
    end if;
    if s.kind = 'child' then
        came := 0;
        entry := child_ended(r, s, now);
        if entry is not null then
            copied := (
                select octet_length(w.output::text) from workflow_step as w where w.ctid = step_place(r.id, s.key)
            );
        end if;
    elsif s.kind in ('sleep', 'event', 'approval', 'task') and s.due_at <= now then
        entry := lapse_wait(r, s, now);
    end if;
end $$;

-- The oldest event that this wait may take: for everyone since the chain was started, or for this chain alone. The
-- order begins with the run, which only the index of topics has; ordered by number, all later events of the store might
-- be read.
create or replace function available(r workflow_run, s workflow_step) returns workflow_inbox language plpgsql
set enable_sort = off as $$
declare
    everyones workflow_inbox;
    own workflow_inbox;
    head uuid := coalesce(r.chain, r.id);
    since bigint := s.since_mark;
begin
    if r.chain is not null then
        since := greatest(since, passed(head, s.topic));
    end if;
    select i.* into everyones from workflow_inbox as i
    where i.tenant = r.tenant and i.topic = s.topic and i.run_id is null
        and i.seq > greatest(r.inbox_mark, since) and not i.late and (s.due_at is null or i.at <= s.due_at)
        and (select 1 from workflow_receipt as t where t.run_id = head and t.event_seq = i.seq limit 1) is null
    order by i.run_id, i.seq limit 1;
    select i.* into own from workflow_inbox as i
    where i.tenant = r.tenant and i.topic = s.topic and i.run_id >= head and i.run_id <= head
        and i.seq > since and not i.late and (s.due_at is null or i.at <= s.due_at)
        and (select 1 from workflow_receipt as t where t.run_id = head and t.event_seq = i.seq limit 1) is null
    order by i.run_id, i.seq limit 1;
    if own.seq < everyones.seq or everyones.seq is null then
        return own;
    end if;
    return everyones;
end $$;

create or replace function take(r workflow_run, s workflow_step, event workflow_inbox, now timestamptz) returns bigint
language plpgsql as $$
declare
    came text := '{"id":' || to_json(event.event_id) || ',"topic":' || to_json(event.topic) || ',"at":' || us(event.at)
        || ',"payload":' || event.payload || '}';
begin
    insert into workflow_receipt (run_id, event_seq, step, link)
    values (coalesce(r.chain, r.id), event.seq, s.key, case when r.chain is not null then r.id end);
    if s.kind = 'task' then
        perform call_again(s, ('{"reason":"event","event":' || came || '}')::json);
    else
        perform give_outcome(r, s, 'succeeded', came::json, null, now);
    end if;
    return note(
        r.id, 'woken', '{"step":' || to_json(s.key) || ',"event":' || to_json(event.event_id) || led(r, s), now
    );
end $$;

-- Call a plan's task again that has waited.
create or replace function call_again(s workflow_step, why json) returns void language plpgsql as $$
begin
    update workflow_step as w set status = 'pending', wake = why, due_at = null
    where w.ctid = step_place(s.run_id, s.key) and w.status = 'waiting';
end $$;

-- Write the outcome. The number says in which order outcomes became known; rows of a plan keep their number.
create or replace function give_outcome(
    r workflow_run, s workflow_step, to_status text, result json, why json, now timestamptz
) returns void language plpgsql as $$
begin
    update workflow_step as w
    set seq = case when r.kind = 'plan' then w.seq else 1 + highest_seq(r.id, r.step_mark) end,
        status = to_status, output = result, error = why, finished_at = now
    where w.ctid = step_place(r.id, s.key) and w.status = 'waiting';
end $$;

create or replace function child_ended(r workflow_run, s workflow_step, now timestamptz) returns bigint
language plpgsql as $$
declare
    child record;
    who text;
    said text;
    why json;
begin
    -- One statement: a child that continues as another run hands its place over and ends in one commit.
    select w.child_id as id, coalesce(c.status, 'gone') as status, c.id is null or c.finished_at is not null as ended,
        coalesce(c.result, 'null') as result, coalesce(c.error, 'null') as error into child
    from workflow_step as w left join workflow_run as c on c.id = any(array[w.child_id])
    where w.ctid = step_place(s.run_id, s.key);
    if not child.ended then
        return null;
    end if;
    who := '{"step":' || to_json(s.key) || ',"child":' || to_json(child.id);
    said := '{"run":' || to_json(child.id) || ',"status":' || to_json(child.status);
    if child.status = 'succeeded' then
        perform give_outcome(r, s, 'succeeded', (said || ',"result":' || child.result || '}')::json, null, now);
        return note(r.id, 'woken', who || led(r, s), now);
    end if;
    why := blame('child_failed', 'child run ' || child.id || ' is ' || child.status, s.key);
    perform give_outcome(r, s, 'failed', (said || ',"error":' || child.error || '}')::json, why, now);
    return note(r.id, 'woken', who || ',"error":' || why || led(r, s), now);
end $$;

-- The time of a wait is over.
create or replace function lapse_wait(r workflow_run, s workflow_step, now timestamptz) returns bigint
language plpgsql as $$
declare
    who text := '{"step":' || to_json(s.key);
    approved boolean := s.on_timeout is not distinct from 'approve';
begin
    case s.kind
    when 'sleep' then
        perform give_outcome(r, s, 'succeeded', 'null', null, now);
        return note(r.id, 'woken', who || led(r, s), now);
    when 'approval' then
        perform decided(r, s, approved, '', '', true, now);
        return note(r.id, 'timed_out', who || ',"approved":' || to_json(approved) || led(r, s), now);
    when 'task' then
        perform call_again(s, '{"reason":"timeout"}');
    else
        perform give_outcome(
            r, s, 'failed', null,
            blame('timeout', 'no event on ' || s.topic || ' before the deadline', s.key), now
        );
    end case;
    return note(r.id, 'timed_out', who || led(r, s), now);
end $$;

-- A gate has its decision. In a plan a rejected gate has failed; code gets the decision and goes on.
create or replace function decided(
    r workflow_run, s workflow_step, approved boolean, who text, comment text, timed_out boolean, now timestamptz
) returns void language plpgsql as $$
declare
    said json := ('{"approved":' || to_json(approved) || ',"by":' || to_json(who) || ',"comment":' || to_json(comment)
                  || ',"at":' || us(now) || ',"timed_out":' || to_json(timed_out) || '}')::json;
    why text;
begin
    if approved or r.kind <> 'plan' then
        perform give_outcome(r, s, 'succeeded', said, null, now);
        return;
    end if;
    why := concat_ws(
        ': ', case when timed_out then 'nobody decided in time' when who <> '' then 'by ' || who end, nullif(comment, '')
    );
    perform give_outcome(
        r, s, 'failed', said, blame('rejected', coalesce(nullif(why, ''), 'no reason given'), s.key), now
    );
end $$;

-- Tell the run: it learns of the outcome at once, at its next boundary, or when it is resumed.
create or replace function go_on(r workflow_run, s workflow_step, entry bigint, now timestamptz) returns void
language plpgsql as $$
begin
    if wakes(r, s) then
        update workflow_run as w
        set status = 'pending', run_at = now, attempt = 0, crashes = 0, survived = 0, waiting_on = null,
            wait_topic = null, deadline_at = null, updated_at = now, rev = w.rev + 1
        where w.id = r.id and w.status = 'waiting';
    elsif r.status = 'waiting' then
        if apply_plan(r, come_to(r, step_named(r.id, s.key), now), now, now, false) = 'pending' then
            perform lead_to(entry, 'pending');
        end if;
    elsif r.status = 'pending' then  -- it need not back off any longer
        update workflow_run as w set run_at = now, updated_at = now, rev = w.rev + 1
        where w.id = r.id and w.status = 'pending' and w.run_at > now;
    elsif r.status = 'paused' then  -- it learns this when it is resumed; for a plan it is progress
        update workflow_run as w
        set resume_to = 'pending', run_at = case when w.kind = 'plan' then greatest(w.run_at, now) else now end,
            attempt = case when w.kind = 'plan' then 0 else w.attempt end,
            crashes = case when w.kind = 'plan' then 0 else w.crashes end,
            survived = case when w.kind = 'plan' then 0 else w.survived end, updated_at = now, rev = w.rev + 1
        where w.id = r.id and w.status = 'paused';
    end if;
end $$;
