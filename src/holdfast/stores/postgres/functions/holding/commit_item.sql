-- One item of a holder by the general path, in the order of the contract.

create or replace function commit_item(r workflow_run, item jsonb, now timestamptz) returns json language plpgsql as $$
declare
    item_fence bigint := (item ->> 'fence')::bigint;
    item_number integer := (item ->> 'number')::integer;
    current workflow_step;
begin
    if r.status <> 'leased' or r.fence <> item_fence or r.lease_until < now then
        return not_held(r, item);
    end if;
    if r.commit_fence = item_fence and item_number <= r.commit_no then
        return repeated(r, item, case when item_number = r.commit_no then r.commit_answer end);
    end if;
    if exists (
        select 1 from jsonb_array_elements(item -> 'steps') as w (step)
        cross join lateral step_named(r.id, w.step ->> 'key') as s
        where s.fence = item_fence and s.number >= item_number
    ) then
        return repeated(r, item, null);
    end if;
    if r.kind = 'plan' and jsonb_array_length(item -> 'steps') > 0 then
        current := open_step(r.id);
    end if;
    if strays(item, current.key, r.kind = 'plan') then
        return json_build_object('answer', 'lost', 'status', 'leased');
    end if;
    if may_wait(item) then
        perform refuse_foreign(r.tenant, item);
    end if;
    return write_item(r, item, current, now);
end $$;

-- Runs that a commit starts and events that it sends must belong to the run's own tenant.
create or replace function refuse_foreign(tenant text, item jsonb) returns void language plpgsql as $$
declare
    other text;
begin
    select coalesce(n.named, 'default') into other
    from (
        select value ->> 'tenant' as named from jsonb_array_elements(item -> 'events')
        union all
        select value ->> 'tenant' from jsonb_array_elements(item -> 'starts')
        union all
        select value -> 'child' ->> 'tenant' from jsonb_array_elements(item -> 'steps')
        where jsonb_typeof(value -> 'child') = 'object'
    ) as n
    where coalesce(n.named, 'default') <> refuse_foreign.tenant limit 1;
    if found then
        perform refuse('UsageError', 'run ' || (item ->> 'run') || ' cannot start a run or send an event for tenant '
            || '''' || left(other, 60) || '''' || case when length(other) > 60 then '…' else '' end || ': only for its own tenant');
    end if;
end $$;

-- The verdict for a caller that does not hold the run: the first answer if the item was applied before and no other
-- holder has written since, otherwise the state of the run.
create or replace function not_held(r workflow_run, item jsonb) returns json language plpgsql stable as $$
declare
    item_fence bigint := (item ->> 'fence')::bigint;
    item_number integer := (item ->> 'number')::integer;
begin
    if not exists (
        -- A gate of a plan that was opened meanwhile has no number.
        select 1 from workflow_step as s where s.run_id = r.id and s.fence > item_fence and s.number > 0
    ) then
        if r.commit_fence = item_fence and item_number <= r.commit_no then
            return repeated(r, item, case when item_number = r.commit_no then r.commit_answer end);
        end if;
        if r.commit_fence <= item_fence and exists (
            select 1 from workflow_step as s
            where s.run_id = r.id and s.fence = item_fence and s.number >= item_number
        ) then
            return repeated(r, item, null);
        end if;
    end if;
    return json_build_object('answer', case when r.status = 'cancelled' then 'cancelled' else 'lost' end,
                             'status', r.status);
end $$;

-- The first answer again. Only the answer to the last number is stored; for older numbers it is known that the holder
-- went on.
create or replace function repeated(r workflow_run, item jsonb, answer text) returns json language plpgsql stable as $$
declare
    first json := coalesce(answer, last_of_plan(r, item), '{"answer":"applied","status":"leased"}')::json;
    more boolean;
begin
    if item ->> 'known' is null or first ->> 'answer' <> 'applied' then
        return first;
    end if;
    more := has_large_news(r.id, (item ->> 'known')::integer);
    return json_build_object(
        'answer', 'applied', 'status', first ->> 'status', 'kept', coalesce(first -> 'kept', '[]'::json),
        'settled', case when more then '[]'::json else settled_since(r.id, (item ->> 'known')::integer) end,
        'more', more, 'seq', highest_seq(r.id, r.step_mark)
    );
end $$;

-- The answer to an item of a plan that left the run row alone, if no other item has been applied since.
create or replace function last_of_plan(r workflow_run, item jsonb) returns text language plpgsql stable as $$
declare
    item_fence bigint := (item ->> 'fence')::bigint;
    item_number integer := (item ->> 'number')::integer;
    s workflow_step;
begin
    if r.kind <> 'plan' or item ->> 'move' <> 'advance' then
        return null;
    end if;
    s := step_named(r.id, item -> 'steps' -> 0 ->> 'key');
    return case when s.fence = item_fence and s.number = item_number and not exists (
        select 1 from workflow_step as w where w.run_id = r.id and w.fence = item_fence and w.number > item_number
    ) then went_on(r, s) end;
end $$;

-- True when an item does not fit the run: a plan's move for code, or for a plan anything but the current step with the
-- status that its move brings.
create or replace function strays(item jsonb, current text, is_plan boolean) returns boolean language plpgsql immutable
as $$
declare
    move text := item ->> 'move';
    step jsonb := item -> 'steps' -> 0;
    count integer := jsonb_array_length(item -> 'steps');
begin
    if move = 'advance' and jsonb_array_length(item -> 'plan') > 0 then
        return count > 0;
    end if;
    if not is_plan then
        return move = 'advance';
    end if;
    if count = 0 then
        return move not in ('retry', 'fail', 'release');
    end if;
    return count > 1 or step ->> 'key' is distinct from current or step ->> 'kind' <> 'task'
        or step ->> 'status' is distinct from case move
            when 'advance' then 'succeeded' when 'park' then 'waiting' when 'retry' then 'ready' when 'fail' then 'failed'
        end
        or (move = 'park' and step ->> 'topic' is null and step ->> 'due_at' is null
            and step ->> 'delay_seconds' is null);
end $$;

create or replace function write_item(r workflow_run, item jsonb, current workflow_step, now timestamptz) returns json
language plpgsql as $$
declare
    w writing;
    entry jsonb;
    started json;
begin
    w.number := (item ->> 'number')::integer;
    w.move := item ->> 'move';
    w.attempt := r.attempt;
    w.crashes := r.crashes;
    w.lease_until := r.lease_until;
    w.pause_by := r.pause_asked_by;
    w.started_fence := r.started_fence;
    w.seq := highest_seq(r.id, r.step_mark);
    w.known := coalesce((item ->> 'known')::integer, w.seq);
    if item ->> 'started_at' is not null and r.started_fence <> r.fence then
        w.started_fence := r.fence;
        w.started_at := moment((item ->> 'started_at')::bigint);
        perform note(r.id, 'started', '{"at":' || (item ->> 'started_at') || '}', now);
    end if;
    for entry in select value from jsonb_array_elements(item -> 'trail') loop
        perform note(r.id, entry ->> 'type', entry ->> 'data', now);
    end loop;
    w := record_steps(r, w, item, now);
    if w.cost > 0 and r.account is not null then
        perform charge(r.account, w.cost);
    end if;
    if w.cost > 0 and w.pause_by is null and r.cost < r.budget and r.budget <= r.cost + w.cost then
        w.pause_by := 'budget';  -- only once: when the cost of the run reaches its budget
    end if;
    if w.opened is not null and w.move <> 'park' then
        perform look_at_all(r, now);
    end if;
    for entry in select value from jsonb_array_elements(item -> 'events') loop
        perform record_event(entry::json, now, false);
    end loop;
    if jsonb_array_length(item -> 'starts') > 0 then
        started := start_runs((item -> 'starts')::json, r.id, now, false);
        perform take_place_of(r.id, (item -> 'starts')::json);
        if w.move = 'complete' then
            perform go_on_as(r, w, (item -> 'starts')::json, started, now);
        end if;
    end if;
    if jsonb_array_length(item -> 'outbox') > 0 then
        perform put_messages(r.id, r.tenant, (item -> 'outbox')::json, now);
    end if;
    case w.move
        when 'checkpoint' then
            return case when w.pause_by is null then stay(r, w, item, 0, now)
                else leave(r, w, item, 'pending', 1, null, null, now) end;
        when 'advance' then
            return case when jsonb_array_length(item -> 'plan') > 0 then begin_plan(r, w, item, now)
                else advance(r, w, item, current, now) end;
        when 'park' then
            return park(r, w, item, current, now);
        when 'complete' then
            return finish(r, counted(w, 0), item, 'succeeded', (item ->> 'result')::json, null, null, null, null, now);
        when 'fail' then
            return finish(r, counted(w, 0), item, 'failed', null, (item ->> 'error')::json, item ->> 'last_error',
                          item ->> 'kind', null, now);
        when 'retry' then
            return retry(r, w, item, now);
        when 'release' then
            w.pause_by := coalesce(w.pause_by, short_of(r, w, item));
            perform note(r.id, 'released', '{}', now);
            return leave(r, w, item, 'pending', 1, now, null, now);
        else
            perform refuse('UsageError', in_a_line(w.move) || ' is no move of a holder');
    end case;
end $$;

-- The open waits that may be settled now, first due first. `look_at_all` looks at them exactly.
create or replace function waits_to_look_at(r workflow_run, now timestamptz) returns setof workflow_step
language plpgsql stable as $$
begin
    return query select w.* from open_waits(r.id) as w
    where w.topic is null or w.kind not in ('event', 'task') or w.due_at <= now
        or may_have_come(coalesce(r.chain, r.id), r.tenant, w.topic, r.inbox_mark, w.since_mark);
end $$;

-- Look at all open waits, so that nothing is missed between the check and the wait: an event that is there already
-- settles the wait. When the values are large, some waits are left; the run then owes a look at them, because it may
-- neither park nor open a wait for a long time.
create or replace function look_at_all(r workflow_run, now timestamptz) returns void language plpgsql as $$
declare
    s workflow_step;
    seen record;
    copied bigint := 0;
begin
    for s in select * from waits_to_look_at(r, now) loop
        if copied >= slice_bytes() then
            update workflow_run as w set owes = w.owes | 8, rev = w.rev + 1 where w.id = r.id;
            perform hint();
            exit;
        end if;
        seen := look_at(r, s, now);
        perform count_woken(r, seen.came, 1);
        copied := copied + seen.copied;
    end loop;
end $$;

-- When a child ends and goes on as another run, that run takes its place for the parent.
create or replace function take_place_of(before uuid, starts json) returns void language plpgsql as $$
begin
    update workflow_step as s set child_id = n.id
    from json_to_recordset(starts) as n (id uuid, parent uuid, parent_step text)
    where n.parent_step is not null and s.run_id = any(array[n.parent]) and s.key = any(array[n.parent_step])
        and s.child_id = before;
end $$;
