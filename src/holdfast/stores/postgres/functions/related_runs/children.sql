-- The debts of runs since their last commit: 1 tell the parent of their end, 2 cancel their open children, 4 cancel the
-- children that no step names any more, 8 look at their own open waits, 16 delete or restore the other runs of their
-- chain, 32 resume the runs that their new budget covers. The debt was recorded with that commit and is found by an index of runs that owe something. Whoever comes
-- first carries it out, one slice a commit. The debt of a locked run stays.

-- Carry out one slice. Returns how many parents were woken, and what is left.
create or replace function carry_out(since json, lim integer, now timestamptz) returns json language plpgsql as $$
declare
    behind uuid := coalesce((since ->> 'owing')::uuid, '00000000-0000-0000-0000-000000000000');
    r workflow_run;
begin
    select w.* into r from workflow_run as w where w.owes > 0 and w.id > behind order by w.id limit 1;
    if r.id is null then
        return json_build_object('woken', 0, 'left', null);
    elsif r.owes & 6 > 0 then
        return cancel_children(r, behind, lim, now);
    elsif r.owes & 8 > 0 then
        return look_again(r, behind, now);
    elsif r.owes & 16 > 0 then
        return follow_first(r, behind, lim, now);
    elsif r.owes & 32 > 0 then
        return resume_members(r, behind, lim, now);
    end if;
    return tell_parents(behind, lim, now);
end $$;

create or replace function tell_parents(behind uuid, lim integer, now timestamptz) returns json language plpgsql as $$
declare
    -- Ids only: a row in an array would carry its params and its result.
    page uuid[] := array(select w.id from workflow_run as w where w.owes > 0 and w.id > behind order by w.id limit lim);
    got uuid[] := lock_some(array(
        select unnest(array[w.id, w.parent_id]) from workflow_run as w where w.id = any(page) and w.owes & 62 = 0
    ));
    told uuid[] := '{}';
    woken integer := 0;
    copied bigint := 0;
    one uuid;
    r workflow_run;
begin
    foreach one in array page loop
        select w.* into r from workflow_run as w where w.id = one;
        exit when r.owes & 62 > 0 or copied >= slice_bytes();
        behind := one;
        continue when r.owes is null or r.owes & 1 = 0;  -- another session was faster
        -- A parent that does not exist cannot be told, and need not be.
        if r.id = any(got) and (r.parent_id = any(got) or not exists (
            select 1 from workflow_run as p where p.id = r.parent_id
        )) then
            woken := woken + coalesce(tell_parent(r, now), false)::integer;
            told := told || r.id;
            copied := copied + coalesce(octet_length(r.result::text), 0) + coalesce(octet_length(r.error::text), 0);
        end if;
    end loop;
    update workflow_run as w set owes = w.owes & ~1, rev = w.rev + 1 where w.id = any(told) and w.owes & 1 > 0;
    if woken > 0 then
        perform hint();
    end if;
    return json_build_object('woken', woken, 'left', json_build_object('owing', behind)::text);
end $$;

-- Tell the parent that the child has ended or is gone, if the parent's step waits for this run. Returns whether that
-- woke the parent.
create or replace function tell_parent(child workflow_run, now timestamptz) returns boolean language plpgsql as $$
declare
    s workflow_step;
    p workflow_run;
begin
    s := step_named(child.parent_id, child.parent_step);
    if (s.kind = 'child' and s.status = 'waiting' and s.child_id = child.id) is not true then
        return false;
    end if;
    select w.* into p from workflow_run as w where w.id = child.parent_id;
    return settle(p, s, now);
end $$;

-- The open children that are to be cancelled, of a run that owes that.
create or replace function doomed(r workflow_run, lim integer) returns uuid[] language plpgsql stable as $$
begin
    return array(
        select c.id from workflow_run as c
        where c.parent_id = r.id and c.finished_at is null and c.tenant = r.tenant
            and (r.owes & 2 > 0 or (c.parent_step is not null and (
                select s.child_id from workflow_step as s
                where s.run_id = r.id and s.key >= c.parent_step and s.key <= c.parent_step order by s.key limit 1
            ) is distinct from c.id))
        order by c.id limit lim
    );
end $$;

-- Cancel a slice of one run's children. When all are cancelled, the debt is cleared.
create or replace function cancel_children(r workflow_run, behind uuid, lim integer, now timestamptz) returns json
language plpgsql as $$
declare
    got uuid[] := lock_some(doomed(r, lim) || r.id);
    cancelled integer := 0;
    held boolean := false;
    child workflow_run;
begin
    if r.id <> all(got) then
        return json_build_object('woken', 0, 'left', json_build_object('owing', r.id)::text);
    end if;
    select w.* into r from workflow_run as w where w.id = r.id;
    for child in
        select c.* from workflow_run as c where c.id = any(doomed(r, lim)) and c.id = any(got) order by c.id
    loop
        perform cancel_run(child, 'parent ' || r.id, true, now);
        held := held or child.status = 'leased';
        cancelled := cancelled + 1;
    end loop;
    if cardinality(doomed(r, 1)) = 0 then
        update workflow_run as w set owes = w.owes & ~6, rev = w.rev + 1 where w.id = r.id and w.owes & 6 > 0;
        cancelled := cancelled + 1;
    end if;
    if cancelled > 0 then
        perform hint_after(case when held then 'leased' end);
    end if;
    -- Only locked children are left. The next call finds them.
    return json_build_object('woken', 0, 'left', json_build_object(
        'owing', case when cancelled > 0 then behind else r.id end
    )::text);
end $$;

-- Continue a look at waits that has stopped, whatever happened to the run since. Waits that its holder opens meanwhile
-- are left to the next look: their topics are not locked here.
create or replace function look_again(r workflow_run, behind uuid, now timestamptz) returns json language plpgsql as $$
declare
    topics text[] := topics_to_look_at(array[r.id]);
    got uuid[] := lock_some_waits(array[r.id], topics);
    s workflow_step;
    seen record;
    woken integer := 0;
    copied bigint := 0;
    cut boolean := false;
begin
    if (r.id = any(got)) is not true or not topics_to_look_at(array[r.id]) <@ topics then
        return json_build_object('woken', 0, 'left', json_build_object('owing', r.id)::text);
    end if;
    select w.* into r from workflow_run as w where w.id = r.id;
    for s in select * from waits_to_look_at(r, now) loop
        cut := copied >= slice_bytes();
        exit when cut;
        select w.* into r from workflow_run as w where w.id = r.id;
        seen := look_at(r, s, now);
        continue when seen.entry is null;
        perform count_woken(r, seen.came, 1);
        perform go_on(r, s, seen.entry, now);
        woken := woken + (is_reached(r) and seen.came is not null)::integer;
        copied := copied + seen.copied;
    end loop;
    if not cut then
        update workflow_run as w set owes = w.owes & ~8, rev = w.rev + 1 where w.id = r.id and w.owes & 8 > 0;
    end if;
    if woken > 0 then
        perform hint();
    end if;
    return json_build_object('woken', woken, 'left', json_build_object('owing', behind)::text);
end $$;
