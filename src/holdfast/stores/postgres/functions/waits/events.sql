-- Events, and waits that come due. An event is recorded in a commit of its own. Then the session that delivers takes
-- the bucket of its topic and hands the event to the waits, one slice a commit. A session that opens a wait takes the
-- same bucket before it looks for events. So either it sees the event, or the delivering session sees the wait. An
-- event is marked as delivered only after all its waits were met; a session that dies, or that finds a run locked,
-- leaves the event to the next one. The progress of an event that takes several slices is in its row (`place`), so that
-- any session can continue. Slices answer `left`: where the next one continues.

-- Write an event to the inbox; an event whose id is there is left alone. An event that is addressed to a run belongs to
-- its chain and is kept as long as the chain, if the chain exists and no purge is removing it. `late`: recorded in a
-- caller's transaction.
create or replace function record_event(event json, now timestamptz, late boolean) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    run uuid := chain_of((event ->> 'run')::uuid);
    whose text := coalesce(event ->> 'tenant', 'default');
    topic text := event ->> 'topic';
    id text := event ->> 'id';
    stays boolean := false;
begin
    if run is not null then
        perform 1 from workflow_run as r where r.id = run for key share skip locked;
        stays := found;
    end if;
    insert into workflow_inbox (tenant, topic, event_id, run_id, payload, at, keep_until, late, late_by)
    values (
        whose, topic, id, run, coalesce(event ->> 'payload', 'null')::json, now,
        case when not stays then
            now + span(greatest(7 * 86400, (event ->> 'keep_seconds')::double precision)) end,
        record_event.late, case when record_event.late then pg_current_xact_id() end
    )
    on conflict (tenant, event_id) do nothing;
    return found;
end $$;

create or replace function event_named(tenant text, id text) returns workflow_inbox language plpgsql
set enable_sort = off as $$
declare
    e workflow_inbox;
begin
    select i.* into e from workflow_inbox as i
    where i.tenant = event_named.tenant and i.event_id >= event_named.id and i.event_id <= event_named.id
    order by i.event_id limit 1;
    return e;
end $$;

-- Record an event from outside, unless it is there. It is checked here; events of a holder's commit are taken as they
-- are, or the run could never end.
create or replace function take_in(event json, now timestamptz, late boolean) returns json language plpgsql as $$
declare
    whose text := coalesce(event ->> 'tenant', 'default');
    payload text := event ->> 'payload';
    known boolean := true;
    number bigint;
begin
    if not (
        tenant_fault(whose) is null and is_name(event ->> 'id') and length(event ->> 'topic') between 1 and 512
    ) is true or may_be_odd(payload) then
        perform refuse_odd_event(whose, event ->> 'topic', event ->> 'id', payload);
    end if;
    loop
        number := (event_named(whose, event ->> 'id')).seq;
        exit when number is not null;
        perform refuse_unless_open(event, whose);
        -- Not recorded: another session was faster, and the next look sees its event; or that event is gone again.
        known := not record_event(event, now, late);
    end loop;
    return json_build_object('seq', number, 'duplicate', known);
end $$;

create or replace function refuse_unless_open(event json, whose text) returns void language plpgsql as $$
declare
    run uuid := (event ->> 'run')::uuid;
    r workflow_run;
begin
    if run is null then
        return;
    end if;
    -- One statement: the present run of a chain ends and the next one appears in one commit.
    select w.* into r from workflow_run as meant
    join workflow_run as head on head.id = any(array[coalesce(meant.chain, meant.id)])
    join workflow_run as w on w.id = any(array[coalesce(head.present, head.id)])
    where meant.id = run and meant.tenant = whose and head.deleted_at is null;
    if r.id is null then
        perform refuse_unknown(run);
    elsif r.finished_at is not null then
        perform refuse_move(r.id, 'emit', r.status, send_there(r));
    end if;
end $$;

-- Record an event in any transaction, which may commit long after: the event is `late`.
create or replace function emit(event json) returns json language plpgsql set search_path from current as $$
begin
    perform hint();
    return take_in(event, clock(), true);
end $$;

-- Record an event in a transaction that does nothing else; the caller delivers it next.
create or replace function emit_at_once(event json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
begin
    return take_in(event, clock(), false);
end $$;

-- The waits for an event, one page.
create or replace function waiters(e workflow_inbox, run uuid, step integer, lim integer) returns setof workflow_step
language plpgsql stable as $$
declare
    addressee uuid;
begin
    if e.run_id is not null then
        addressee := present_of(e.run_id);
        return query select s.* from workflow_step as s
        where s.status = 'waiting' and s.topic is not null and s.tenant = e.tenant and s.topic = e.topic
            and s.run_id = addressee and s.seq > step
        order by s.seq limit lim;
    else
        return query select s.* from workflow_step as s
        where s.status = 'waiting' and s.topic is not null and s.tenant = e.tenant and s.topic = e.topic
            and (s.run_id, s.seq) > (run, step)
        order by s.run_id, s.seq limit lim;
    end if;
end $$;

-- Deliver one slice of an event, from its place on: `lim` waits, fewer when the values are large. `woken`: the runs
-- that this slice has reached. `left`: its place; null when all waits were met. The event is marked as delivered only
-- if no wait was skipped, by this slice or an earlier one; otherwise it starts again. `busy`: another session has the
-- topic, and nothing was done.
create or replace function hand_over(
    e workflow_inbox, lim integer, now timestamptz, out woken uuid[], out "left" json, out busy boolean
) language plpgsql as $$
declare
    from_run uuid := coalesce((e.place ->> 'run')::uuid, '00000000-0000-0000-0000-000000000000');
    from_step integer := coalesce((e.place ->> 'step')::integer, -1);
    passed_over boolean := coalesce((e.place ->> 'passed_over')::boolean, false);
    seen uuid[] := array(select w.run_id from waiters(e, from_run, from_step, lim) as w);
    names text[] := e.tenant || U&'\001F' || e.topic || plan_run_topics(seen);
    got uuid[];
    counted integer := 0;
    met integer := 0;
    copied bigint := 0;
    r workflow_run;
    s workflow_step;
    settled record;
    seen_again record;
begin
    woken := '{}';
    busy := not lock_some_topics(names);
    if busy then
        return;
    end if;
    -- Another session may have delivered the event or a slice of it meanwhile; then no row is touched. This is a
    -- statement of its own, so that it sees that.
    select i.delivered, i.place into seen_again from workflow_inbox as i where i.ctid = event_place(e.seq);
    if not found or seen_again.delivered then
        return;
    elsif seen_again.place::text is distinct from e.place::text then
        "left" := coalesce(seen_again.place, place('00000000-0000-0000-0000-000000000000', -1, false));
        return;
    end if;
    -- This event was committed after events with higher numbers that chains have taken. The chains must see it too.
    update workflow_chain_topic as t set passed = e.seq - 1
    where t.tenant = e.tenant and t.topic = e.topic and t.passed >= e.seq;
    got := lock_some_under(seen, names);
    for s in select * from waiters(e, from_run, from_step, lim) loop
        if s.run_id <> all(seen) then  -- a new plan run: its other topics are not locked
            "left" := place(from_run, from_step, passed_over);
            exit;
        end if;
        met := met + 1;
        from_run := s.run_id;
        from_step := s.seq;
        if s.run_id <> all(got) then
            passed_over := true;
            continue;
        end if;
        select w.* into r from workflow_run as w where w.id = s.run_id;
        settled := look_at(r, s, now);
        if settled.entry is not null then
            perform go_on(r, s, settled.entry, now);
            if is_reached(r) and settled.came is not null then
                woken := woken || r.id;
            end if;
            if settled.came = e.seq then
                counted := counted + is_reached(r)::integer;
            else
                perform count_woken(r, settled.came, 1);
            end if;
            copied := copied + settled.copied;
            exit when copied >= slice_bytes();
        end if;
    end loop;
    if "left" is null and (met >= lim or copied >= slice_bytes()) then
        "left" := place(from_run, from_step, passed_over);
    end if;
    if counted > 0 or not passed_over or "left"::text is distinct from e.place::text then
        update workflow_inbox as i
        set woken = i.woken + counted, place = hand_over."left",
            delivered = (hand_over."left" is null and not passed_over)
        where i.ctid = event_place(e.seq);
    end if;
    if woken <> '{}' then
        perform hint();
    end if;
end $$;

create or replace function place(run uuid, step integer, passed_over boolean) returns json language sql immutable as $$
    select json_build_object('run', run, 'step', step, 'passed_over', passed_over)
$$;

-- Give an event of a caller's transaction its final number: it counts from now on. This is a commit of its own, so that
-- the next look can find it like any other event. The transaction that recorded the event must not do this.
create or replace function number_anew(e workflow_inbox, now timestamptz) returns boolean language plpgsql as $$
begin
    update workflow_inbox as i
    set seq = nextval(pg_get_serial_sequence('workflow_inbox', 'seq')), at = now, late = false
    where i.ctid = event_place(e.seq) and i.late and i.late_by is distinct from pg_current_xact_id();
    return found;
end $$;

-- Deliver one slice of one event. Returns how many runs it has reached so far (`runs`: in this slice), and what is
-- left. `since`: null, or what was left; the event row stores it too.
create or replace function deliver_event(tenant text, id text, since json, lim integer) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    e workflow_inbox;
    slice record;
begin
    e := event_named(deliver_event.tenant, deliver_event.id);
    if e.seq is null or e.delivered then
        return json_build_object('woken', coalesce(e.woken, 0), 'left', null);
    elsif e.late and not number_anew(e, now) then
        return json_build_object('woken', 0, 'left', null);
    end if;
    e := event_named(deliver_event.tenant, deliver_event.id);
    slice := hand_over(e, greatest(lim, 1), now);
    return json_build_object(
        'woken', coalesce((event_named(e.tenant, e.event_id)).woken, e.woken),
        'runs', slice.woken, 'left', slice."left"::text, 'busy', slice.busy
    );
end $$;

-- Deliver one slice of all that is undelivered, oldest event first, and then of what runs owe each other. Returns the
-- runs that were woken, and what is left. `next`: where the following event is, if this one is not done.
create or replace function deliver(since json, lim integer) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    e workflow_inbox;
    slice record;
begin
    if since ->> 'owing' is null then
        select i.* into e from workflow_inbox as i
        where not i.delivered and i.seq >= coalesce((since ->> 'seq')::bigint, 0) order by i.seq limit 1;
    end if;
    if e.seq is null then
        return carry_out(since, greatest(lim, 1), now);
    elsif e.late then
        perform number_anew(e, now);
        return json_build_object('woken', 0, 'left', json_build_object('seq', e.seq + 1)::text);
    end if;
    slice := hand_over(e, greatest(lim, 1), now);
    return json_build_object(
        'woken', cardinality(slice.woken), 'runs', slice.woken,
        'left', json_build_object('seq', e.seq + (slice."left" is null)::integer)::text,
        'next', case when slice."left" is not null then json_build_object('seq', e.seq + 1)::text end
    );
end $$;

-- The number of these runs that no worker has claimed yet. A chore that wakes many runs continues when most of them are
-- claimed.
create or replace function still_pending(runs json) returns integer language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
begin
    return (
        select count(*) from workflow_run as r
        where r.id = any(array(select one.id::uuid from json_array_elements_text(runs) as one (id)))
            and r.status = 'pending' and r.deleted_at is null
    );
end $$;

-- True when a worker that was seen in the last `live` seconds can take any of these runs.
create or replace function is_served(runs json, live double precision) returns boolean language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    since timestamptz := clock() - span(live);
begin
    return exists (
        select 1 from workflow_run as r join workflow_worker as w on can_run(w, r.type, r.tenant)
        where r.id = any(array(select one.id::uuid from json_array_elements_text(runs) as one (id)))
            and w.seen_at >= since
    );
end $$;

-- Settle one slice of the waits that are due, first due first. Returns how many were settled, the runs, and what is
-- left. It takes few runs at a time, because each may need a bucket. wait_timeouts=false leaves out the deadlines of
-- plans' tasks and awaited events.
create or replace function lapse(since json, wait_timeouts boolean, lim integer) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    most integer := least(greatest(lim, 1), 100);
    seen uuid[];
    topics text[];
    got uuid[];
    lapsed uuid[] := '{}';
    met integer := 0;
    copied bigint := 0;
    outcome record;
    r workflow_run;
    s workflow_step;
    last json;
begin
    select array_agg(d.run_id), array_agg(d.tenant || U&'\001F' || d.topic) into seen, topics
    from due_waits(since, lapse.wait_timeouts, most, now) as d;
    if seen is null then
        return json_build_object('done', 0, 'left', null);
    end if;
    topics := array_remove(topics, null);
    got := lock_some_waits(seen, topics);
    for s in select * from due_waits(since, lapse.wait_timeouts, most, now) loop
        met := met + 1;
        last := json_build_object('due', us(s.due_at), 'run', s.run_id, 'step', s.seq);
        continue when s.run_id = any(got) is not true
            or (s.topic is not null and s.tenant || U&'\001F' || s.topic <> all(topics));
        select w.* into r from workflow_run as w where w.id = s.run_id;
        outcome := look_at(r, s, now);
        continue when outcome.entry is null;
        perform count_woken(r, outcome.came, 1);
        perform go_on(r, s, outcome.entry, now);
        lapsed := lapsed || r.id;
        copied := copied + outcome.copied;
        exit when copied >= slice_bytes();
    end loop;
    if lapsed <> '{}' then
        perform hint();
    end if;
    return json_build_object(
        'done', cardinality(lapsed), 'runs', lapsed,
        'left', case when met >= most or copied >= slice_bytes() then last::text end
    );
end $$;

create or replace function due_waits(since json, wait_timeouts boolean, lim integer, now timestamptz)
returns setof workflow_step language plpgsql stable as $$
declare
    due timestamptz := coalesce(moment((since ->> 'due')::bigint), '-infinity');
    run uuid := coalesce((since ->> 'run')::uuid, '00000000-0000-0000-0000-000000000000');
    step integer := coalesce((since ->> 'step')::integer, -1);
begin
    if wait_timeouts then
        return query select s.* from workflow_step as s
        where s.status = 'waiting' and s.due_at is not null and s.kind <> 'child'
            and s.due_at <= now and s.due_at >= due and (s.due_at, s.run_id, s.seq) > (due, run, step)
        order by s.due_at, s.run_id, s.seq limit lim;
    else
        return query select s.* from workflow_step as s
        where s.status = 'waiting' and s.due_at is not null and s.kind <> 'child' and s.kind <> 'task'
            and (s.kind <> 'event' or s.timeout_seconds is null)
            and s.due_at <= now and s.due_at >= due and (s.due_at, s.run_id, s.seq) > (due, run, step)
        order by s.due_at, s.run_id, s.seq limit lim;
    end if;
end $$;
