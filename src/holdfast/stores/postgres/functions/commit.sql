-- commit: the one door for everything that a holder writes. What is plain comes apart from the rest, in short rows, and
-- goes many at once; what of it is not so plain is named in the answer, untouched, and is to be sent the long way.

create or replace function commit(batch json, checkpoints json, completes json, steps json, news boolean) returns json
language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    late_checkpoints integer[];
    late_completes integer[];
    verdicts json := '[]';
begin
    if batch is not null then
        perform lock_for_commit(batch);
    end if;
    if checkpoints is not null then
        late_checkpoints := commit_checkpoints(checkpoints, now);
    end if;
    if completes is not null then
        late_completes := commit_completes(completes, steps, now);
    end if;
    if batch is not null then
        verdicts := commit_items(batch, false, now);
    end if;
    if news then
        perform hint();
    end if;
    if batch is null and late_checkpoints is null and late_completes is null then
        return null;  -- all is well: nothing to read for either side
    end if;
    return json_build_object('verdicts', verdicts, 'checkpoints', coalesce(late_checkpoints, '{}'),
                             'completes', coalesce(late_completes, '{}'));
end $$;

-- One outcome of a key that is new, each: THE guard of every write of a holder, and nothing to change in the run row,
-- but for the first of an execution, with which `started` is due. What is passed over is answered by its place.
create or replace function commit_checkpoints(items json, now timestamptz) returns integer[] language plpgsql as $$
declare
    late integer[];
begin
    with item as materialized (
        select * from rows from (json_to_recordset(items) as (
            run uuid, fence bigint, number integer, lasts double precision, key text, kind text, attempts integer,
            output text, started_at bigint, begun_at bigint
        )) with ordinality as i (
            run, fence, number, lasts, key, kind, attempts, output, started_at, begun_at, place
        )
    ), held as materialized (
        select r.id, r.step_mark, i.place, i.begun_at is not null and r.started_fence <> r.fence as begins
        from item as i join workflow_run as r on r.id = i.run
        where r.status || '' = 'leased' and r.fence = i.fence and r.lease_until >= now
            and r.attempt = 1 and r.crashes = 0 and r.pause_asked_by is null and r.kind = 'code'
            and r.lease_until >= now + make_interval(secs => i.lasts * 2 / 3)
            and not (r.commit_fence = r.fence and r.commit_no >= i.number)
        for no key update of r skip locked
    ), begun as (
        update workflow_run as r
        set started_fence = r.fence, started_at = coalesce(r.started_at, moment(i.begun_at)), updated_at = now,
            rev = r.rev + 1
        from held as h join item as i on i.place = h.place
        where h.begins and r.id = h.id
    ), recorded as (
        -- A number that was taken since this statement began is a conflict too, and the item goes the long way.
        insert into workflow_step (
            run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
        )
        select h.id,
            1 + greatest(h.step_mark, coalesce((select max(s.seq) from workflow_step as s where s.run_id = h.id), 0)),
            i.key, i.kind, 'succeeded', i.attempts, i.output::json, i.fence, i.number, moment(i.started_at), now
        from held as h join item as i on i.place = h.place
        on conflict do nothing
        returning run_id
    ), told as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select t.id, t.what, t.data::json, now, false
        from (
            select h.id, 'started' as what, '{"at":' || i.begun_at || '}' as data, h.place, 0 as rank
            from held as h join item as i on i.place = h.place where h.begins
            union all
            select i.run, 'step_succeeded', '{"step":' || to_json(i.key)::text || '}', i.place, 1
            from recorded join item as i on i.run = recorded.run_id
        ) as t order by t.place, t.rank
    )
    select array_agg(i.place - 1) into late
    from item as i where not exists (select 1 from recorded where recorded.run_id = i.run);
    return late;
end $$;

-- Runs that succeed, with nothing else riding along; a pause that was asked for loses. `steps`: of those that are
-- `whole`, which carry all the steps of their runs: none stands yet, so their numbers are known.
create or replace function commit_completes(items json, steps json, now timestamptz) returns integer[]
language plpgsql as $$
declare
    late integer[];
begin
    with item as materialized (
        select * from rows from (json_to_recordset(items) as (
            run uuid, fence bigint, number integer, result text, begun_at bigint, whole boolean
        )) with ordinality as i (run, fence, number, result, begun_at, whole, place)
    ), held as materialized (
        select r.id, i.place, i.begun_at is not null and r.started_fence <> r.fence as begins
        from item as i join workflow_run as r on r.id = i.run
        where r.status || '' = 'leased' and r.fence = i.fence and r.lease_until >= now and r.kind = 'code'
            and not (r.commit_fence = r.fence and r.commit_no >= i.number)
            and (not i.whole or (r.attempt = 1 and r.crashes = 0 and r.step_mark = 0
                                 and not exists (select 1 from workflow_step as s where s.run_id = r.id)))
        for no key update of r skip locked
    ), ended as (
        update workflow_run as r
        set status = 'succeeded', result = i.result::json, error = null, last_error = null, finished_at = now,
            expires_at = now + span(r.ttl_seconds), leased_by = null, lease_until = null, pause_asked_by = null,
            owes = case when r.parent_step is null then r.owes else r.owes | 1 end,
            started_fence = case when h.begins then r.fence else r.started_fence end,
            started_at = coalesce(r.started_at, moment(i.begun_at)), commit_fence = r.fence, commit_no = i.number,
            commit_answer = '{"answer":"applied","status":"succeeded"}', updated_at = now, rev = r.rev + 1
        from held as h join item as i on i.place = h.place
        where r.id = h.id
    ), cancelled as (
        update workflow_step as s set status = 'cancelled', finished_at = now
        from held as h where s.run_id = h.id and s.finished_at is null and s.status in ('ready', 'waiting')
    ), part as materialized (
        select * from rows from (json_to_recordset(steps) as (
            run uuid, fence bigint, number integer, seq integer, key text, kind text, attempts integer, output text,
            started_at bigint
        )) with ordinality as p (run, fence, number, seq, key, kind, attempts, output, started_at, place)
    ), recorded as (
        insert into workflow_step (
            run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
        )
        select p.run, p.seq, p.key, p.kind, 'succeeded', p.attempts, p.output::json, p.fence, p.number,
            moment(p.started_at), now
        from part as p where exists (select 1 from held where held.id = p.run)
    ), told as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select t.id, t.what, t.data::json, now, false
        from (
            select h.id, 'started' as what, '{"at":' || i.begun_at || '}' as data, h.place, 0 as rank
            from held as h join item as i on i.place = h.place where h.begins
            union all
            select p.run, 'step_succeeded', '{"step":' || to_json(p.key)::text || '}', h.place, p.seq
            from part as p join held as h on h.id = p.run
            union all
            select h.id, 'succeeded', '{}', h.place, 2147483647 from held as h
        ) as t order by t.place, t.rank
    )
    select array_agg(i.place - 1) into late from item as i where not exists (select 1 from held where held.id = i.run);
    return late;
end $$;

-- Everything that the items may look at, in the one order: buckets first. Nobody but the holder opens waits of a run, so
-- what is read here without a lock is what there is.
create or replace function lock_for_commit(batch json) returns void language plpgsql as $$
begin
    perform lock_topics(array(
        select unnest(open_topics(array(
            select (i.item ->> 'run')::uuid from json_array_elements(batch) as i (item)
            where i.item ->> 'move' in ('park', 'advance') or i.item ->> 'steps' like '%"waiting"%'
        )))
        union
        select r.tenant || U&'\001F' || (w.step ->> 'topic')
        from json_array_elements(batch) as i (item) join workflow_run as r on r.id = (i.item ->> 'run')::uuid
        cross join json_array_elements(i.item -> 'steps') as w (step)
        where w.step ->> 'topic' is not null
        union
        select r.tenant || U&'\001F' || (p.step ->> 'topic')
        from json_array_elements(batch) as i (item) join workflow_run as r on r.id = (i.item ->> 'run')::uuid
        cross join json_array_elements(i.item -> 'plan') as p (step)
        where p.step ->> 'topic' is not null
        union
        select unnest(plan_topics(i.item -> 'starts')) from json_array_elements(batch) as i (item)
        union
        select unnest(plan_topics(json_build_array(w.step -> 'child')))
        from json_array_elements(batch) as i (item) cross join json_array_elements(i.item -> 'steps') as w (step)
        where json_typeof(w.step -> 'child') = 'object'
    ));
    perform lock_lines(array(
        select r.tenant || U&'\001F' || (o.message ->> 'sink') || U&'\001F' || (o.message ->> 'key')
        from json_array_elements(batch) as i (item) join workflow_run as r on r.id = (i.item ->> 'run')::uuid
        cross join json_array_elements(i.item -> 'outbox') as o (message)
        where o.message ->> 'key' is not null
    ));
end $$;

-- Any item, one after the other. A row that someone else holds is busy, and stops no other.
create or replace function commit_items(batch json, patient boolean, now timestamptz) returns json language plpgsql as $$
declare
    item json;
    mine uuid[];
    r workflow_run;
    answers json[] := '{}';
begin
    select array_agg(l.id) into mine from (
        select w.id from workflow_run as w
        where w.id = any(array(select (i.value ->> 'run')::uuid from json_array_elements(batch) as i))
        for no key update skip locked
    ) as l;
    for item in select value from json_array_elements(batch) loop
        select * into r from workflow_run as w where w.id = (item ->> 'run')::uuid;
        if not found then
            answers := answers || json_build_object('answer', 'lost', 'status', 'cancelled');
        elsif r.id = any(mine) then
            answers := answers || commit_item(r, item, now);
        elsif patient and came_free(r.id) then
            select * into r from workflow_run as w where w.id = r.id;
            answers := answers || commit_item(r, item, now);
        else
            answers := answers || json_build_object('answer', 'busy', 'status', r.status);
        end if;
    end loop;
    return array_to_json(answers);
end $$;

-- What was busy, or turned out not to be plain, once more. Who holds a row is mostly done with it at once.
create or replace function commit_again(batch json, news boolean) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set lock_timeout = '50ms' as $$
declare
    verdicts json;
begin
    perform lock_for_commit(batch);
    verdicts := commit_items(batch, true, clock());
    if news then
        perform hint();
    end if;
    return verdicts;
end $$;

-- Whether a row could be had within the time that the caller has set.
create or replace function came_free(run uuid) returns boolean language plpgsql as $$
begin
    perform 1 from workflow_run as r where r.id = run for no key update;
    return true;
exception when lock_not_available then
    return false;
end $$;
