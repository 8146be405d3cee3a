-- Runs that move to another store: machine/relocating.py says what each verb does.

-- True when a run has left this store, or waits for its release here.
create or replace function is_away(r workflow_run) returns boolean language sql immutable as
    $$select r.finished_at is not null and coalesce(r.pause_asked_by in ('move', 'moved'), false)$$;

-- The target of a run that moves. Null: it does not move, or had ended before.
create or replace function moves_to(r workflow_run) returns text language sql immutable as
    $$select case when r.last_error like 'moved: it moves to %' then substr(r.last_error, 8) end$$;

-- The hint for one who sends something to a run that moves. Empty: the run does not move, or had ended before.
create or replace function send_there(r workflow_run) returns text language sql immutable as
    $$select coalesce(moves_to(r) || ': send it there', '')$$;

create or replace function refuse_away(r workflow_run, move text) returns void language plpgsql as $$
begin
    if is_away(r) then
        perform refuse_move(r.id, move, r.status, coalesce(
            moves_to(r) || ': do that where it goes on', 'it moves, or has moved, to another store'
        ));
    end if;
end $$;

-- True when the run came from another store since it left.
create or replace function has_arrived(run uuid) returns boolean language plpgsql stable as $$
begin
    return coalesce((
        select e.event_type = 'imported' from workflow_event as e
        where e.workflow_id = run and e.event_type in ('leaving', 'imported') order by e.id desc limit 1
    ), false);
end $$;

-- The newest record of a departure, in the trail row `leaving`: departure, to, was.
create or replace function departed(run uuid) returns json language plpgsql stable as $$
begin
    return coalesce((
        select e.data from workflow_event as e
        where e.workflow_id = run and e.event_type = 'leaving' order by e.id desc limit 1
    ), '{}');
end $$;

-- The answer for a run that has left.
create or replace function how_far(r workflow_run) returns text language sql immutable as
    $$select case when r.expires_at = moment(253370764800000000) then 'left' else 'went_on' end$$;

-- The copy at the target that `left` has recorded for the last departure: its fence. 0: any.
create or replace function recorded_copy(run uuid) returns bigint language plpgsql stable as $$
begin
    return coalesce((
        select (e.data ->> 'copy')::bigint from workflow_event as e
        where e.workflow_id = run and e.event_type = 'left' order by e.id desc limit 1
    ), 0);
end $$;

-- Make the pending messages of a run dead. Returns their ids. The caller holds the locks of their queues.
create or replace function hold_messages(run uuid, now timestamptz) returns json language plpgsql as $$
declare
    ids text[] := '{}';
    o workflow_outbox;
begin
    for o in select m.* from workflow_outbox as m where m.run_id = run and m.status = 'pending' order by m.seq loop
        update workflow_outbox as m set fence = m.fence + 1 where m.seq = o.seq;
        perform answered(o, json_build_object(
            'answer', 'dead', 'error', '{"kind":"moved","message":"its run moves to another store"}'
        ), now);
        ids := ids || o.id;
    end loop;
    return array_to_json(ids);
end $$;

-- Those of this run only: a file may have been edited.
create or replace function free_messages(run uuid, ids json, now timestamptz) returns void language plpgsql as $$
declare
    o workflow_outbox;
    one text;
begin
    for one in select json_array_elements_text(ids) loop
        select m.* into o from workflow_outbox as m where m.id = one and m.run_id = run and m.status = 'dead' for update;
        if found then
            update workflow_outbox as m
            set seq = default, status = 'pending', attempts = 0, tried_at = null, sent_at = null, next_at = now,
                last_error = null,
                behind = o.key is not null and next_of_line(o.tenant, o.sink, o.key, 0) is not null
            where m.id = one;
        end if;
    end loop;
end $$;

-- expires_at: the year 9999, so that no purge removes a run that is on its way.
create or replace function leave_run(r workflow_run, target text, who text, now timestamptz) returns json
language plpgsql as $$
declare
    was_open boolean := r.finished_at is null;
    noted json;
    at_rest json;
    steps json;
    messages json;
begin
    if is_away(r) then
        noted := departed(r.id);
        if r.pause_asked_by = 'moved' then
            return json_build_object(
                'answer', how_far(r),
                'departure', noted -> 'departure', 'to', noted -> 'to', 'copy', recorded_copy(r.id)
            );
        elsif has_arrived(r.id) then
            return json_build_object('answer', 'refused', 'why', 'waits');
        elsif noted ->> 'to' is distinct from target then
            return json_build_object('answer', 'refused', 'why', 'target', 'to', noted -> 'to');
        end if;
        return json_build_object('answer', 'leaving', 'departure', noted -> 'departure', 'to', target);
    elsif r.owes & 16 > 0 or not was_open and r.owes & ~1 > 0 then
        return json_build_object('answer', 'busy', 'why', 'owes');
    end if;
    if was_open then
        if r.status = 'leased' then
            r.status := case when r.pause_asked_by is null then 'pending' else 'paused' end;
            r.resume_to := case when r.pause_asked_by is not null then 'pending' end;
            r.run_at := now;
            r.attempt := greatest(0, r.attempt - 1);
        end if;
        at_rest := json_build_object(
            'status', r.status, 'resume_to', r.resume_to, 'pause_asked_by', r.pause_asked_by, 'run_at', us(r.run_at),
            'attempt', r.attempt, 'owes', r.owes, 'waiting_on', r.waiting_on, 'wait_topic', r.wait_topic,
            'deadline_at', us(r.deadline_at), 'error', r.error::text, 'last_error', r.last_error
        );
        select coalesce(json_object_agg(s.key, s.status order by s.seq), '{}') into steps from workflow_step as s
        where s.run_id = r.id and s.status not in ('succeeded', 'failed', 'cancelled');
        update workflow_step as s set status = 'cancelled', finished_at = now
        where s.run_id = r.id and s.status not in ('succeeded', 'failed', 'cancelled');
    end if;
    messages := hold_messages(r.id, now);
    if was_open then
        update workflow_run as w
        set status = 'cancelled', finished_at = now, expires_at = moment(253370764800000000), leased_by = null, lease_until = null,
            resume_to = null, waiting_on = null, wait_topic = null, deadline_at = null, owes = 0, attempt = r.attempt,
            run_at = r.run_at,
            error = json_build_object('kind', 'moved', 'message', 'it moves to ' || target),
            last_error = 'moved: it moves to ' || target, pause_asked_by = 'move', fence = w.fence + 1, updated_at = now,
            rev = w.rev + 1
        where w.id = r.id;
    else
        update workflow_run as w
        set pause_asked_by = 'move', expires_at = moment(253370764800000000), fence = w.fence + 1, updated_at = now,
            rev = w.rev + 1
        where w.id = r.id;
    end if;
    perform note(r.id, 'leaving', case when was_open then json_build_object(
        'by', who, 'to', target,
        'was', json_build_object('expires_at', null, 'row', at_rest, 'steps', steps, 'messages', messages),
        'departure', r.fence + 1, 'status', 'cancelled'
    ) else json_build_object(
        'by', who, 'to', target, 'was', json_build_object('expires_at', us(r.expires_at), 'messages', messages),
        'departure', r.fence + 1
    ) end::text, now);
    return json_build_object('answer', 'leaving', 'departure', r.fence + 1, 'to', target);
end $$;

create or replace function left_run(r workflow_run, number bigint, who text, now timestamptz, chosen bigint) returns json
language plpgsql as $$
declare
    noted json;
begin
    if not is_away(r) or r.pause_asked_by = 'move' and has_arrived(r.id) then
        return json_build_object('answer', 'refused', 'why', 'not leaving');
    end if;
    noted := departed(r.id);
    if (noted ->> 'departure')::bigint is distinct from number then
        return json_build_object('answer', 'refused', 'why', 'departure');
    elsif r.pause_asked_by = 'move' then
        update workflow_run as w set pause_asked_by = 'moved', updated_at = now, rev = w.rev + 1 where w.id = r.id;
        perform note(r.id, 'left', case when chosen = 0 then json_build_object('by', who)
            else json_build_object('by', who, 'copy', chosen) end::text, now);
    else
        chosen := recorded_copy(r.id);
    end if;
    return json_build_object('answer', how_far(r), 'departure', number, 'copy', chosen);
end $$;

create or replace function went_on_run(r workflow_run, number bigint, who text, now timestamptz) returns json
language plpgsql as $$
declare
    noted json := departed(r.id);
begin
    if not is_away(r) or r.pause_asked_by = 'move' then
        return json_build_object('answer', 'refused', 'why', 'not left');
    elsif (noted ->> 'departure')::bigint is distinct from number then
        return json_build_object('answer', 'refused', 'why', 'departure');
    elsif r.expires_at = moment(253370764800000000) then
        update workflow_run as w
        set expires_at = moment((noted -> 'was' ->> 'expires_at')::bigint), updated_at = now, rev = w.rev + 1
        where w.id = r.id;
        perform note(r.id, 'went_on', json_build_object('by', who)::text, now);
    end if;
    return json_build_object('answer', 'went_on', 'departure', number);
end $$;

-- Let a run be what it was before it left. With waits it owes a look at what came meanwhile.
create or replace function relocated(r workflow_run, noted json, word text, who text, now timestamptz) returns json
language plpgsql as $$
declare
    was json := noted -> 'was';
    n record;
begin
    if json_typeof(was -> 'row') = 'object' then
        select * into n from json_to_record(was -> 'row') as n (
            status text, resume_to text, pause_asked_by text, run_at bigint, attempt integer, owes integer,
            waiting_on text, wait_topic text, deadline_at bigint, error text, last_error text
        );
        update workflow_step as s set status = o.value, finished_at = null
        from json_each_text(was -> 'steps') as o where s.run_id = r.id and s.key = o.key;
        update workflow_run as w
        set status = n.status, resume_to = n.resume_to, pause_asked_by = n.pause_asked_by, run_at = moment(n.run_at),
            attempt = n.attempt, waiting_on = n.waiting_on, wait_topic = n.wait_topic,
            deadline_at = moment(n.deadline_at), error = n.error::json, last_error = n.last_error, finished_at = null,
            expires_at = null,
            owes = n.owes | case when exists (
                select 1 from json_each_text(was -> 'steps') as o where o.value = 'waiting'
            ) then 8 else 0 end, fence = w.fence + 1, updated_at = now, rev = w.rev + 1
        where w.id = r.id;
        perform note(r.id, word, json_build_object('by', who, 'status', n.status)::text, now);
    else
        update workflow_run as w
        set pause_asked_by = null, expires_at = moment((was ->> 'expires_at')::bigint), fence = w.fence + 1,
            updated_at = now, rev = w.rev + 1
        where w.id = r.id;
        perform note(r.id, word, json_build_object('by', who)::text, now);
    end if;
    perform free_messages(r.id, was -> 'messages', now);
    return json_build_object('answer', 'here', 'departure', noted -> 'departure');
end $$;

create or replace function come_back_run(r workflow_run, number bigint, who text, now timestamptz) returns json
language plpgsql as $$
declare
    noted json := departed(r.id);
begin
    if not is_away(r) then
        return json_build_object('answer', 'here');
    elsif r.pause_asked_by = 'moved' then
        return json_build_object('answer', 'refused', 'why', 'left');
    elsif has_arrived(r.id) then
        return json_build_object('answer', 'refused', 'why', 'waits');
    elsif number <> 0 and (noted ->> 'departure')::bigint is distinct from number then
        return json_build_object('answer', 'refused', 'why', 'departure');
    end if;
    return relocated(r, noted, 'returned', who, now);
end $$;

create or replace function arrive_run(r workflow_run, number bigint, who text, now timestamptz, chosen bigint)
returns json
language plpgsql as $$
declare
    noted json := departed(r.id);
begin
    if not is_away(r) then
        return json_build_object('answer', 'here');
    elsif r.pause_asked_by = 'moved' then
        return json_build_object('answer', 'refused', 'why', 'away');
    elsif not has_arrived(r.id) then
        return json_build_object('answer', 'refused', 'why', 'leaves');
    elsif (noted ->> 'departure')::bigint is distinct from number then
        return json_build_object('answer', 'refused', 'why', 'departure');
    elsif chosen not in (0, r.fence) then
        return json_build_object('answer', 'refused', 'why', 'copy');
    end if;
    return relocated(r, noted, 'arrived', who, now);
end $$;

create or replace function drop_run(r workflow_run, number bigint, who text, now timestamptz, chosen bigint)
returns json
language plpgsql as $$
declare
    noted json := departed(r.id);
begin
    if not is_away(r) or r.pause_asked_by = 'moved' or not has_arrived(r.id) then
        return json_build_object('answer', 'refused', 'why', 'no wait');
    elsif coalesce((noted ->> 'departure')::bigint, 0) > number then
        return json_build_object('answer', 'refused', 'why', 'departure');
    elsif chosen not in (0, r.fence) then
        return json_build_object('answer', 'refused', 'why', 'copy');
    end if;
    update workflow_run as w set deleted_at = moment(1), updated_at = now, rev = w.rev + 1 where w.id = r.id;
    perform note(r.id, 'deleted', json_build_object('by', who)::text, now);
    return json_build_object('answer', 'dropped', 'departure', noted -> 'departure');
end $$;

-- The queues of messages that a verb may change: pending ones of the runs, and those that their records name.
create or replace function queues_of(runs uuid[], verb text) returns text[] language plpgsql stable as $$
begin
    if verb = 'leave' then
        return array(
            select distinct line_of(o.tenant, o.sink, o.key) from workflow_outbox as o
            where o.run_id = any(runs) and o.status = 'pending' and o.key is not null
        );
    elsif verb in ('come_back', 'arrive') then
        return array(
            select distinct line_of(o.tenant, o.sink, o.key) from unnest(runs) as r (id)
            cross join json_array_elements_text(departed(r.id) -> 'was' -> 'messages') as m (id)
            join workflow_outbox as o on o.id = m.id where o.key is not null
        );
    end if;
    return '{}';
end $$;

-- One of the verbs leave, left, went_on, come_back, arrive and drop_arrived, for these runs in their order. `departures`:
-- the number of the departure of each run; leave needs none. `copies`: the copy of each at the target; 0: any. After the
-- first run that is busy all others are busy: a child must not stop before its parent.
create or replace function relocate(
    verb text, runs uuid[], departures bigint[], target text, who text, copies bigint[]
) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    now timestamptz := clock();
    answers json[] := '{}';
    queues text[];
    others text[];
    held boolean := false;
    one uuid;
    number bigint;
    chosen bigint;
    said json;
    r workflow_run;
begin
    queues := queues_of(runs, verb);
    perform lock_lines(queues);
    perform lock_runs(runs);
    others := queues_of(runs, verb);
    for one, number, chosen in
        select u.id, u.departure, u.copy
        from unnest(runs, departures, copies) with ordinality as u (id, departure, copy, place) order by u.place
    loop
        select w.* into r from workflow_run as w where w.id = one and w.deleted_at is distinct from '-infinity';
        if said ->> 'answer' = 'busy' then
            said := json_build_object('answer', 'busy', 'why', 'behind');
        elsif r.id is null then
            said := json_build_object('answer', 'unknown');
        elsif not others <@ queues then  -- messages came before the rows were locked
            said := json_build_object('answer', 'busy', 'why', 'messages');
        else
            held := held or r.status = 'leased';
            said := case verb
                when 'leave' then leave_run(r, target, who, now) when 'left' then left_run(r, number, who, now, chosen)
                when 'went_on' then went_on_run(r, number, who, now)
                when 'come_back' then come_back_run(r, number, who, now)
                when 'arrive' then arrive_run(r, number, who, now, chosen)
                else drop_run(r, number, who, now, chosen) end;
        end if;
        answers := answers || said;
    end loop;
    perform hint_after(case when held then 'leased' end);
    return array_to_json(answers);
end $$;
