-- Writes of whole runs and events that come from another store.

create or replace function import_events(events json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    numbers json;
begin
    insert into workflow_inbox (tenant, topic, event_id, run_id, payload, at, keep_until, delivered, woken)
    select e.tenant, e.topic, e.id, e.chain, e.payload::json, moment(e.at), moment(e.keep_until), e.delivered, e.woken
    from rows from (json_to_recordset(events) as (
        id text, tenant text, topic text, at bigint, keep_until bigint, payload text, chain uuid, delivered boolean,
        woken integer
    )) with ordinality as e (id, tenant, topic, at, keep_until, payload, chain, delivered, woken, place)
    order by e.place
    on conflict (tenant, event_id) do nothing;
    select json_agg((event_named(e.tenant, e.id)).seq order by e.place) into numbers
    from rows from (json_to_recordset(events) as (id text, tenant text))
        with ordinality as e (id, tenant, place);
    perform hint();
    return coalesce(numbers, '[]');
end $$;

-- Let the numbers of trail rows go on above this one: fences are not higher than they are. The sequence grows while this
-- looks at it; so it is set far enough above. Only one session sets it at a time.
create or replace function raise_trail(above bigint) returns void language plpgsql volatile as $$
begin
    if first_fence() <= above then
        perform pg_advisory_xact_lock(1752132457, 0);
        if first_fence() <= above then
            perform setval('workflow_event_id_seq', above + 100000);
        end if;
    end if;
end $$;

create or replace function forget_part(run uuid) returns void language plpgsql volatile as $$
begin
    delete from workflow_step as s where s.run_id = run;
    delete from workflow_event as e where e.workflow_id = run;
end $$;

-- Write the rows of a part. Notes are written before the run itself, so that no trigger counts them as happenings. A note
-- of user SQL is marked afterwards, because its trigger would write its time.
create or replace function bring_part(item json, run uuid, whose text) returns void language plpgsql volatile as $$
declare
    told bigint[];
    head uuid := coalesce((item ->> 'chain')::uuid, run);
    linked uuid := case when item ->> 'chain' is not null then run end;
begin
    with n as materialized (
        select nextval('workflow_event_id_seq') as id, n.* from (
            select x.* from rows from (json_to_recordset(item -> 'notes') as (
                type text, at bigint, data text, told boolean
            )) with ordinality as x (type, at, data, told, place) order by x.place
        ) as n
    ), written as (
        insert into workflow_event (id, workflow_id, event_type, data, created_at, told)
        select n.id, run, n.type, n.data::json, moment(n.at), false from n order by n.place
    )
    select array_agg(n.id) filter (where n.told) into told from n;
    if told is not null then
        update workflow_event as e set told = true where e.id = any(bring_part.told);
    end if;
    with s as materialized (
        select * from json_to_recordset(item -> 'steps') as s (
            seq integer, key text, kind text, status text, attempts integer, output text, error text, cost bigint,
            topic text, due_at bigint, fence bigint, number integer, started_at bigint, finished_at bigint,
            max_attempts integer, timeout_seconds double precision, ask text, digest text, child uuid, wake text,
            waits integer, watermark bigint, on_timeout text, took bigint[]
        )
    ), receipts as (
        insert into workflow_receipt (run_id, event_seq, step, link)
        select head, t.event, s.key, linked from s cross join unnest(s.took) as t (event)
        on conflict do nothing
    )
    insert into workflow_step (
        run_id, tenant, seq, key, kind, status, attempts, output, error, cost, topic, due_at, fence, number, started_at,
        finished_at, max_attempts, timeout_seconds, ask, digest, child_id, wake, waits, since_mark, on_timeout
    )
    select run, whose, s.seq, s.key, s.kind, s.status, s.attempts, s.output::json, s.error::json, s.cost, s.topic,
        moment(s.due_at), s.fence, s.number, moment(s.started_at), moment(s.finished_at), s.max_attempts,
        s.timeout_seconds, s.ask::json, s.digest, s.child, s.wake::json, s.waits, coalesce(s.watermark, inbox_mark()),
        s.on_timeout
    from s;
end $$;

create or replace function bring_messages(messages json, run uuid, whose text) returns void language plpgsql volatile as $$
declare
    m record;
begin
    for m in
        select * from json_to_recordset(messages) as m (
            id text, sink text, created_at bigint, next_at bigint, step text, key text, payload text, status text,
            attempts integer, fence bigint, error text, tried_at bigint, sent_at bigint
        )
    loop
        insert into workflow_outbox (
            id, tenant, run_id, step, sink, key, payload, status, attempts, behind, next_at, fence, last_error, created_at,
            tried_at, sent_at
        )
        values (
            m.id, whose, run, m.step, m.sink, m.key, m.payload::json, m.status, m.attempts,
            m.status = 'pending' and m.key is not null and next_of_line(whose, m.sink, m.key, 0) is not null,
            moment(m.next_at), m.fence, m.error::json, moment(m.created_at), moment(m.tried_at), moment(m.sent_at)
        )
        on conflict (id) do nothing;
    end loop;
end $$;

-- Bits of `owes` that an imported run has: to tell its parent, or to look for events of its waits. A look would take a
-- child that has not come yet for gone. Its children that have ended tell it again.
create or replace function import_debts(item json, status text, parent_step text) returns integer
language plpgsql volatile as $$
declare
    children uuid[];
    listens boolean;
begin
    if status in ('succeeded', 'failed', 'cancelled') then
        return case when parent_step is null then 0 else 1 end;
    end if;
    select array_agg(s.child) filter (where s.child is not null),
        bool_or(s.kind in ('event', 'task') and s.topic is not null)
    into children, listens
    from json_to_recordset(item -> 'steps') as s (kind text, status text, topic text, child uuid)
    where s.status = 'waiting';
    update workflow_run as w set owes = w.owes | 1, rev = w.rev + 1
    where w.id = any(children) and w.finished_at is not null;
    return case when listens and not exists (
        select 1 from unnest(children) as c (id) where not exists (select 1 from workflow_run as w where w.id = c.id)
    ) then 8 else 0 end;
end $$;

-- A run of another tenant that an imported run belongs to, or waits for, as it says.
create or replace function stranger_to(item json, run uuid, whose text, head uuid) returns uuid
language plpgsql stable as $$
begin
    return (
        select w.id from (
            select 1 as place, head as id
            union all select 2, (item -> 'row' ->> 'parent')::uuid where json_typeof(item -> 'row') = 'object'
            union all select 3, (item -> 'row' ->> 'account')::uuid where json_typeof(item -> 'row') = 'object'
            union all
            select 4, s.child from json_to_recordset(item -> 'steps') as s (child uuid, status text)
            where s.status not in ('succeeded', 'failed')
        ) as o
        join workflow_run as w on w.id = o.id
        where o.id <> run and w.tenant <> whose order by o.place limit 1
    );
end $$;

create or replace function import_run(item json, who text, now timestamptz) returns json language plpgsql volatile as $$
declare
    run uuid := (item ->> 'id')::uuid;
    whose text := item ->> 'tenant';
    head uuid := (item ->> 'chain')::uuid;
    is_last boolean := json_typeof(item -> 'row') = 'object';
    n record;
    there uuid;
    full_key text;
    known text;
begin
    if exists (select 1 from workflow_run as w where w.id = run) then
        known := (
            select e.data ->> 'digest' from workflow_event as e
            where e.workflow_id = run and e.event_type = 'imported' order by e.id desc limit 1
        );
        if exists (select 1 from workflow_run as w where w.id = run and w.deleted_at = '-infinity') then
            return json_build_object('answer', 'refused', 'why', 'purge');
        elsif not is_last then
            return json_build_object('answer', 'part');
        elsif known = item ->> 'digest' then
            return json_build_object('answer', 'there');
        end if;
        return json_build_object('answer', 'refused', 'why', 'content');
    end if;
    if head is not null then
        select w.tenant, w.finished_at is null as is_open into n from workflow_run as w where w.id = head;
        if not found then
            return json_build_object('answer', 'refused', 'why', 'chain');
        elsif n.is_open then
            return json_build_object('answer', 'refused', 'why', 'open');
        end if;
    end if;
    there := stranger_to(item, run, whose, head);
    if there is not null then
        return json_build_object('answer', 'refused', 'why', 'tenant', 'run', there);
    end if;
    if not is_last then
        if (item ->> 'is_first')::boolean then
            perform forget_part(run);
        end if;
        perform bring_part(item, run, whose);
        return json_build_object('answer', 'part');
    end if;
    select * into n from json_to_record(item -> 'row') as n (
        type text, run_at bigint, created_at bigint, kind text, status text, resume_to text, pause_asked_by text,
        params text, digest text, key text, priority integer, attempt integer, max_attempts integer, crashes integer,
        max_crashes integer, survived integer, tried_of integer, step_mark integer, waiting_on text, wait_topic text,
        deadline_at bigint, owes integer, cost bigint, budget bigint, account uuid, shared bigint[], error text,
        last_error text, progress text, result text, started_at bigint, finished_at bigint, deleted_at bigint,
        timeout_seconds double precision, timeout_at bigint, ttl_seconds double precision, expires_at bigint,
        watermark bigint, parent uuid, parent_step text, is_present boolean, limit_key text, labels text, trace text,
        origin uuid, api_key text
    );
    full_key := stored_key(whose, n.key);
    there := (select w.id from workflow_run as w where w.idempotency_key = full_key);
    if there is not null then
        return json_build_object('answer', 'refused', 'why', 'key', 'run', there);
    end if;
    if (item ->> 'is_first')::boolean then
        perform forget_part(run);
    end if;
    perform bring_part(item, run, whose);
    -- With rev 2 the trigger of the counts does not count it as started.
    insert into workflow_run (
        id, tenant, type, kind, payload, status, priority, run_at, idempotency_key, digest, attempt, max_attempts, crashes,
        max_crashes, survived, tried_of, fence, waiting_on, wait_topic, deadline_at, resume_to, pause_asked_by, step_mark,
        parent_id, parent_step, limit_key, labels, cost, budget, progress, trace, result, last_error, error,
        timeout_seconds, timeout_at, ttl_seconds, expires_at, inbox_mark, chain, owes, rev, created_at, updated_at,
        started_at, finished_at, deleted_at, account, origin, api_key
    )
    values (
        run, whose, n.type, n.kind, n.params::json, n.status, n.priority, moment(n.run_at), full_key, n.digest, n.attempt,
        n.max_attempts, n.crashes, n.max_crashes, n.survived, n.tried_of, first_fence(), n.waiting_on, n.wait_topic,
        moment(n.deadline_at), n.resume_to, n.pause_asked_by, n.step_mark, n.parent, n.parent_step, n.limit_key,
        n.labels::json, n.cost, n.budget, n.progress::json, nullif(n.trace, ''), n.result::json, n.last_error,
        n.error::json, n.timeout_seconds, moment(n.timeout_at), n.ttl_seconds, moment(n.expires_at),
        coalesce(n.watermark, inbox_mark()), head, n.owes | import_debts(item, n.status, case when n.pause_asked_by is null or n.finished_at is null then n.parent_step end), 2,
        moment(n.created_at), now, moment(n.started_at), moment(n.finished_at), moment(n.deleted_at), n.account,
        n.origin, n.api_key
    );
    perform bring_messages(item -> 'messages', run, whose);
    if n.is_present then
        update workflow_run as w set present = run, rev = w.rev + 1 where w.id = head;
    end if;
    if n.shared is not null then
        insert into workflow_account (id, budget, spent) values (n.account, n.shared[1], n.shared[2])
        on conflict (id) do update set budget = excluded.budget, spent = excluded.spent;
    end if;
    perform note(run, 'imported', left(json_build_object('by', who, 'digest', item ->> 'digest')::text, -1) || case
        when n.finished_at is null then ', "status" : ' || to_json(n.status)::text || '}' else '}' end, now);
    return json_build_object('answer', 'imported');
end $$;

create or replace function import_runs(parts json, who text) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    now timestamptz := clock();
    answers json[] := '{}';
    item json;
    lines text[];
    others uuid[];
begin
    select array_agg(distinct line_of(p.item ->> 'tenant', m.sink, m.key)) into lines
    from json_array_elements(parts) as p (item)
    cross join json_to_recordset(p.item -> 'messages') as m (sink text, key text, status text)
    where m.status = 'pending';
    perform lock_lines(lines);
    select array_agg(o.id) into others from (
        select (p.item ->> 'chain')::uuid as id from json_array_elements(parts) as p (item)
        union
        select s.child from json_array_elements(parts) as p (item)
        cross join json_to_recordset(p.item -> 'steps') as s (child uuid, status text) where s.status = 'waiting'
    ) as o where o.id is not null;
    perform lock_runs(others);
    perform raise_trail((select max((p.item -> 'row' ->> 'fence')::bigint) from json_array_elements(parts) as p (item)));
    for item in select p.item from json_array_elements(parts) with ordinality as p (item, place) order by p.place loop
        answers := answers || import_run(item, who, now);
    end loop;
    perform hint();
    return array_to_json(answers);
end $$;
