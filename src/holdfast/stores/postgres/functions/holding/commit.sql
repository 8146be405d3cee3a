-- commit: the single write path for everything that a holder writes. Items of the fast path come apart from the rest,
-- as short rows, and are written many at once. Rows that turn out not to fit the fast path are not written; the answer
-- names them, and the caller sends them again by the general path (`commit_again`).

create or replace function commit(
    batch json, checkpoints json, completes json, steps json, news boolean, advances json default null
) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set lock_timeout = '100ms' as $$
declare
    now timestamptz := clock();
    late_checkpoints integer[];
    late_completes integer[];
    advanced json := '[]';
    locked boolean := batch is null or lock_for_commit(batch);
    verdicts json := '[]';
begin
    if checkpoints is not null then
        late_checkpoints := commit_checkpoints(checkpoints, now);
    end if;
    if completes is not null then
        late_completes := commit_completes(completes, steps, now);
    end if;
    if advances is not null then
        advanced := commit_advances(advances, now);
    end if;
    if batch is not null then
        verdicts := case when locked then commit_items(batch, now) else all_busy(batch) end;
    end if;
    -- Nobody else waits for a plan that goes on in place. Somebody may wait for a plan that has ended.
    if news or advanced::text like '%, null, null, null]%' then
        perform hint();
    end if;
    if batch is null and late_checkpoints is null and late_completes is null and advances is null then
        return null;  -- everything is applied: neither side has more to read
    end if;
    return json_build_object('verdicts', verdicts, 'checkpoints', coalesce(late_checkpoints, '{}'),
                             'completes', coalesce(late_completes, '{}'), 'advanced', advanced);
end $$;

-- The rows of a batch as a table with few rows, so that the planner starts with them and looks the runs up one by one.
-- With its default guess of a hundred rows the planner would scan all runs of a table that was small when it planned.
-- Statistics may say that a table is empty, and then all plans cost the same. Three forms leave the planner no choice,
-- here and in the other files. A join is `r.id = any(array[i.run])`, which neither a merge join nor a hash join can
-- serve. A guard is `(select 1 ... limit 1) is null`, which never becomes a join. Where two indexes begin with the same
-- column, the second column is asked for as a range in its order (`key >= k and key <= k order by key`, with
-- `enable_sort` off), which only one of the indexes has.
create or replace function checkpoint_rows(items json) returns table (
    run uuid, fence bigint, number integer, lasts double precision, key text, kind text, attempts integer, output text,
    started_at bigint, begun_at bigint, logs json
) language plpgsql volatile rows 1 as $$
begin
    return query select * from json_to_recordset(items) as i (
        run uuid, fence bigint, number integer, lasts double precision, key text, kind text, attempts integer,
        output text, started_at bigint, begun_at bigint, logs json
    );
end $$;

create or replace function complete_rows(items json) returns table (
    run uuid, fence bigint, number integer, result text, begun_at bigint, whole boolean, logs json
) language plpgsql volatile rows 1 as $$
begin
    return query select * from json_to_recordset(items) as i (
        run uuid, fence bigint, number integer, result text, begun_at bigint, whole boolean, logs json
    );
end $$;

-- Checkpoints of one new step each, under THE guard of every write of a holder. The run row is not changed, except by
-- the first checkpoint of an execution, which writes `started`. Log rows stand before the step that they came with. The
-- answer names the items that were left out, by their places. Nothing here joins two lists: each row carries what it
-- needs, or a batch would cost the square of its length.
create or replace function commit_checkpoints(items json, now timestamptz) returns integer[] language plpgsql
set enable_sort = off as $$
declare
    done uuid[];
begin
    with held as materialized (
        select r.id, r.step_mark, i.*, i.begun_at is not null and r.started_fence <> r.fence as begins
        from checkpoint_rows(items) as i join workflow_run as r on r.id = any(array[i.run])
        where r.status || '' = 'leased' and r.fence = i.fence and r.lease_until >= now
            and r.attempt = 1 and r.crashes = 0 and r.survived = 0 and r.pause_asked_by is null and r.kind = 'code'
            and r.lease_until >= now + make_interval(secs => i.lasts * 2 / 3)
            and not (r.commit_fence = r.fence and r.commit_no >= i.number)
            and (select 1 from workflow_step as s where s.run_id = i.run and s.key >= i.key and s.key <= i.key
                 order by s.key limit 1) is null
        for no key update of r skip locked
    ), begun as (
        update workflow_run as r
        set started_fence = r.fence, started_at = coalesce(r.started_at, moment(h.begun_at)), updated_at = now,
            rev = r.rev + 1
        from held as h where h.begins and r.id = any(array[h.id])
    ), recorded as (
        -- A number or key that another statement took since this one began is a conflict, and the whole call is sent
        -- again. To look first is much cheaper than `on conflict`.
        insert into workflow_step (
            run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
        )
        select h.id,
            1 + greatest(h.step_mark, (
                select s.seq from workflow_step as s where s.run_id = h.id order by s.seq desc limit 1
            )),
            h.key, h.kind, 'succeeded', h.attempts, h.output::json, h.fence, h.number, moment(h.started_at), now
        from held as h
        returning run_id, key
    ), trail_rows as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select t.id, t.what, t.data::json, now, false
        from (
            select h.id, 'started' as what, '{"at":' || h.begun_at || '}' as data, 0 as rank
            from held as h where h.begins
            union all
            select h.id, l.row ->> 'type', l.row ->> 'data', l.place
            from held as h cross join json_array_elements(h.logs) with ordinality as l (row, place)
            union all
            select d.run_id, 'step_succeeded', '{"step":' || to_json(d.key)::text || '}', 2147483647 from recorded as d
        ) as t order by t.id, t.rank
    )
    select array_agg(d.run_id) into done from recorded as d;
    return places_but(items, done);
end $$;

-- A single checkpoint that begins nothing. It has the same guard, in statements that each do one thing, and costs a
-- third less. Returns false when it does not fit the fast path: then nothing is written, and it is to be sent by the
-- general path.
create or replace function commit_one(
    run uuid, fence bigint, number integer, lasts double precision, key text, kind text, attempts integer, output text,
    started_at bigint
) returns boolean language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
    now timestamptz := clock();
    mark integer;
begin
    select r.step_mark into mark from workflow_run as r
    where r.id = run and r.status || '' = 'leased' and r.fence = commit_one.fence and r.lease_until >= now
        and r.attempt = 1 and r.crashes = 0 and r.survived = 0 and r.pause_asked_by is null and r.kind = 'code'
        and r.lease_until >= now + make_interval(secs => lasts * 2 / 3)
        and not (r.commit_fence = r.fence and r.commit_no >= commit_one.number)
    for no key update of r skip locked;
    if not found then
        return false;
    end if;
    insert into workflow_step (
        run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
    )
    select run, 1 + greatest(mark, (
            select s.seq from workflow_step as s where s.run_id = run order by s.seq desc limit 1
        )),
        commit_one.key, commit_one.kind, 'succeeded', commit_one.attempts, commit_one.output::json, commit_one.fence,
        commit_one.number, moment(commit_one.started_at), now
    where (select 1 from workflow_step as s where s.run_id = run and s.key >= commit_one.key
           and s.key <= commit_one.key order by s.key limit 1) is null;
    if not found then
        return false;
    end if;
    insert into workflow_event (workflow_id, event_type, data, created_at, told)
    values (run, 'step_succeeded', ('{"step":' || to_json(commit_one.key)::text || '}')::json, now, false);
    return true;
end $$;

-- Runs that succeed, with nothing but log rows in the same item. A pause that was asked for has no effect. `steps`
-- belong to the items that are `whole`: these bring all steps of their runs, so that no step is stored yet and the
-- numbers are known.
create or replace function commit_completes(items json, steps json, now timestamptz) returns integer[]
language plpgsql as $$
declare
    done uuid[];
begin
    with held as materialized (
        select r.id, i.*, i.begun_at is not null and r.started_fence <> r.fence as begins
        from complete_rows(items) as i join workflow_run as r on r.id = any(array[i.run])
        where r.status || '' = 'leased' and r.fence = i.fence and r.lease_until >= now and r.kind = 'code'
            and not (r.commit_fence = r.fence and r.commit_no >= i.number)
            and (not i.whole or (r.attempt = 1 and r.crashes = 0 and r.survived = 0 and r.step_mark = 0
                                 and (select 1 from workflow_step as s where s.run_id = r.id limit 1) is null))
        for no key update of r skip locked
    ), ended as (
        update workflow_run as r
        set status = 'succeeded', result = h.result::json, error = null, last_error = null, finished_at = now,
            expires_at = now + span(r.ttl_seconds), leased_by = null, lease_until = null, pause_asked_by = null,
            owes = case when r.parent_step is null then r.owes else r.owes | 1 end,
            started_fence = case when h.begins then r.fence else r.started_fence end,
            started_at = coalesce(r.started_at, moment(h.begun_at)), commit_fence = r.fence, commit_no = h.number,
            commit_answer = '{"answer":"applied","status":"succeeded"}', updated_at = now, rev = r.rev + 1
        from held as h where r.id = any(array[h.id])
    ), trail_rows as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select t.id, t.what, t.data::json, now, false
        from (
            select h.id, 'started' as what, '{"at":' || h.begun_at || '}' as data, 0 as rank
            from held as h where h.begins
            union all
            select h.id, l.row ->> 'type', l.row ->> 'data', l.place
            from held as h cross join json_array_elements(h.logs) with ordinality as l (row, place)
            union all
            select h.id, 'succeeded', '{}', 2147483647 from held as h where not h.whole
        ) as t order by t.id, t.rank
    )
    select array_agg(h.id) into done from held as h;
    -- In a statement of its own: joined with the runs above, it might read all open steps of the store.
    update workflow_step as s set status = 'cancelled', finished_at = now
    where s.run_id = any(done) and s.finished_at is null and s.status in ('ready', 'waiting');
    if steps is not null then
        perform record_whole(steps, done, now);
    end if;
    return places_but(items, done);
end $$;

-- Write the steps of runs that came whole, and then their ends. An item that is left out takes the general path with
-- all its steps.
create or replace function record_whole(steps json, done uuid[], now timestamptz) returns void language plpgsql as $$
begin
    with recorded as (
        insert into workflow_step (
            run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
        )
        select p.run, p.seq, p.key, p.kind, 'succeeded', p.attempts, p.output::json, p.fence, p.number,
            moment(p.started_at), now
        from json_to_recordset(steps) as p (
            run uuid, fence bigint, number integer, seq integer, key text, kind text, attempts integer, output text,
            started_at bigint
        )
        where p.run = any(done)
        returning run_id, key, seq
    )
    insert into workflow_event (workflow_id, event_type, data, created_at, told)
    select t.id, t.what, t.data::json, now, false
    from (
        select d.run_id as id, 'step_succeeded' as what, '{"step":' || to_json(d.key)::text || '}' as data, d.seq
        from recorded as d
        union all
        select d.run_id, 'succeeded', '{}', 1 + max(d.seq) from recorded as d group by d.run_id
    ) as t order by t.id, t.seq;
end $$;

-- The places, from 0, of the items that are not among `done`; null when all are.
create or replace function places_but(items json, done uuid[]) returns integer[] language plpgsql immutable as $$
begin
    if coalesce(cardinality(done), 0) = json_array_length(items) then
        return null;
    end if;
    return array(
        select (i.place - 1)::integer from json_array_elements(items) with ordinality as i (item, place)
        where done is null or (i.item ->> 'run')::uuid <> all(done) order by i.place
    );
end $$;

-- Lock everything that the items may look at, in the order of shared/basics.sql: topics, keys, outbox queues. Run rows
-- follow in commit_items, with `skip locked`. Returns false when the locks could not
-- be had in time. Only the holder opens waits of a run, so what is read here without a lock cannot change.
create or replace function lock_for_commit(batch json) returns boolean language plpgsql as $$
declare
    brings record;
    topics text[] := '{}';
begin
    -- Most items have none of this. A search for the words in the text is much cheaper than reading each record.
    select array_agg(i.run) filter (where i.move in ('park', 'advance') or i.steps::text like '%"waiting"%') as watchers,
        bool_or(concat(i.steps, i.plan) ~ '"topic"\s*:\s*"') as topics,
        bool_or(i.steps::text ~ '"child"\s*:\s*{') as children, bool_or(json_array_length(i.starts) > 0) as starts,
        bool_or(i.outbox::text ~ '"key"\s*:\s*"') as lines
    into brings
    from json_to_recordset(batch) as i (run uuid, move text, steps json, plan json, starts json, outbox json);
    if brings.watchers is not null then
        topics := topics_to_look_at(brings.watchers);
    end if;
    if brings.topics then
        topics := topics || array(
            select r.tenant || U&'\001F' || (w.step ->> 'topic')
            from json_to_recordset(batch) as i (run uuid, steps json, plan json)
            join workflow_run as r on r.id = any(array[i.run])
            cross join lateral (
                select * from json_array_elements(i.steps) union all select * from json_array_elements(i.plan)
            ) as w (step)
            where w.step ->> 'topic' is not null
        );
    end if;
    if brings.starts then
        topics := topics || array(
            select unnest(plan_topics(i.starts)) from json_to_recordset(batch) as i (starts json)
        );
    end if;
    if brings.children then
        topics := topics || array(
            select unnest(plan_topics(json_build_array(w.step -> 'child')))
            from json_to_recordset(batch) as i (steps json) cross join json_array_elements(i.steps) as w (step)
            where json_typeof(w.step -> 'child') = 'object'
        );
    end if;
    perform lock_topics(topics);
    if brings.starts or brings.children then
        perform lock_keys(array(
            select stored_key(n.tenant, n.key)
            from json_to_recordset(batch) as i (starts json)
            cross join json_to_recordset(i.starts) as n (tenant text, key text)
            union
            select stored_key(w.step -> 'child' ->> 'tenant', w.step -> 'child' ->> 'key')
            from json_to_recordset(batch) as i (steps json) cross join json_array_elements(i.steps) as w (step)
            where json_typeof(w.step -> 'child') = 'object'
        ));
    end if;
    if brings.lines then
        perform lock_lines(array(
            select r.tenant || U&'\001F' || (o.message ->> 'sink') || U&'\001F' || (o.message ->> 'key')
            from json_to_recordset(batch) as i (run uuid, outbox json) join workflow_run as r on r.id = any(array[i.run])
            cross join json_array_elements(i.outbox) as o (message)
            where o.message ->> 'key' is not null
        ));
    end if;
    return true;
exception when lock_not_available then
    return false;
end $$;

create or replace function all_busy(batch json) returns json language plpgsql stable as $$
begin
    return (select json_agg(json_build_object('answer', 'busy', 'status', 'leased')) from json_array_elements(batch));
end $$;

-- Commit any items, one after the other. A row that another session holds is answered `busy` and does not stop the
-- others. So is an item that would have to wait for a key or an event id in another open transaction.
create or replace function commit_items(batch json, now timestamptz) returns json language plpgsql as $$
declare
    item jsonb;
    mine uuid[];
    accounts uuid[];
    r workflow_run;
    answer json;
    answers json[] := '{}';
begin
    select array_agg(l.id), array_agg(l.account) filter (where l.account is not null) into mine, accounts from (
        select w.id, w.account from workflow_run as w where w.id = any(runs_of(batch)) for no key update skip locked
    ) as l;
    if accounts is not null and not lock_accounts(accounts) then
        mine := array(select w.id from workflow_run as w where w.id = any(mine) and w.account is null);
    end if;
    for item in select value from jsonb_array_elements(batch::jsonb) loop
        select * into r from workflow_run as w where w.id = (item ->> 'run')::uuid;
        if not found then
            answers := answers || json_build_object('answer', 'lost', 'status', 'cancelled');
        elsif r.id = any(mine) then
            answer := case when may_wait(item) then commit_in_time(r, item, now) else commit_item(r, item, now) end;
            answers := answers || case when r.account is null then answer else with_left(answer, item, r.account) end;
        else
            answers := answers || json_build_object('answer', 'busy', 'status', r.status);
        end if;
    end loop;
    return array_to_json(answers);
end $$;

-- True when an item may have to wait. Only such an item gets a subtransaction, because each one costs.
create or replace function may_wait(item jsonb) returns boolean language sql immutable as $$
    select jsonb_array_length(item -> 'starts') + jsonb_array_length(item -> 'events')
        + jsonb_array_length(item -> 'outbox') > 0 or item @? '$.steps[*].child ? (@.type() == "object")'
$$;

create or replace function commit_in_time(r workflow_run, item jsonb, now timestamptz) returns json language plpgsql as $$
begin
    return commit_item(r, item, now);
exception when lock_not_available then
    return json_build_object('answer', 'busy', 'status', r.status);
end $$;

create or replace function runs_of(batch json) returns uuid[] language plpgsql immutable as $$
begin
    return array(select i.run from json_to_recordset(batch) as i (run uuid));
end $$;

-- Commit items again that were busy, or that did not fit the fast path. The session that held a row has mostly ended by
-- then.
create or replace function commit_again(batch json, news boolean) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set lock_timeout = '50ms' as $$
declare
    verdicts json;
begin
    begin
        perform wait_for_runs(runs_of(batch));
    exception when lock_not_available then
        null;
    end;
    verdicts := case when lock_for_commit(batch) then commit_items(batch, clock()) else all_busy(batch) end;
    if news then
        perform hint();
    end if;
    return verdicts;
end $$;
