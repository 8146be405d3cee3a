-- Reads of whole runs and events, for another store. Fields have the names of records/transfer.py.

create or replace function run_ids(after uuid, lim integer) returns json language plpgsql stable
set search_path from current set enable_seqscan = off set jit = off as $$
begin
    return (
        select coalesce(json_agg(f.id order by f.id), '[]') from (
            select r.id from workflow_run as r
            where (run_ids.after is null or r.id > run_ids.after) and r.deleted_at is distinct from '-infinity'
            order by r.id limit greatest(lim, 0)
        ) as f
    );
end $$;

create or replace function carried_row(r workflow_run) returns json language plpgsql stable as $$
declare
    a workflow_account;
begin
    if r.account = r.id then
        select * into a from workflow_account as x where x.id = r.account;
    end if;
    return json_build_object(
        'type', r.type, 'run_at', us(r.run_at), 'created_at', us(r.created_at), 'updated_at', us(r.updated_at),
        'kind', r.kind, 'status', r.status, 'resume_to', r.resume_to, 'pause_asked_by', r.pause_asked_by,
        'params', r.payload::text, 'digest', r.digest, 'key', shown_key(r.tenant, r.idempotency_key),
        'priority', r.priority, 'attempt', r.attempt, 'max_attempts', r.max_attempts, 'crashes', r.crashes,
        'max_crashes', r.max_crashes, 'survived', r.survived, 'tried_of', r.tried_of, 'fence', r.fence,
        'step_mark', r.step_mark, 'waiting_on', r.waiting_on, 'wait_topic', r.wait_topic, 'deadline_at', us(r.deadline_at),
        'owes', r.owes, 'cost', r.cost, 'budget', r.budget, 'account', r.account,
        'shared', case when a.id is not null then json_build_array(a.budget, a.spent) end, 'error', r.error::text,
        'last_error', r.last_error, 'progress', r.progress::text, 'result', r.result::text, 'started_at', us(r.started_at),
        'finished_at', us(r.finished_at), 'deleted_at', us(r.deleted_at), 'timeout_seconds', r.timeout_seconds,
        'timeout_at', us(r.timeout_at), 'ttl_seconds', r.ttl_seconds, 'expires_at', us(r.expires_at),
        'watermark', r.inbox_mark, 'parent', r.parent_id, 'parent_step', r.parent_step,
        'is_present', r.chain is not null and exists (
            select 1 from workflow_run as f where f.id = r.chain and f.present = r.id
        ),
        'goes_on_as', r.present, 'limit_key', r.limit_key, 'labels', r.labels::text, 'trace', coalesce(r.trace, ''), 'origin', r.origin,
        'api_key', r.api_key
    );
end $$;

-- `took`: the events that the steps of the run have taken, by step.
create or replace function carried_step(s workflow_step, took jsonb) returns json language sql stable as $$
    select json_build_object(
        'seq', s.seq, 'key', s.key, 'kind', s.kind, 'status', s.status, 'attempts', s.attempts, 'output', s.output::text,
        'error', s.error::text, 'cost', s.cost, 'topic', s.topic, 'due_at', us(s.due_at), 'fence', s.fence,
        'number', s.number, 'started_at', us(s.started_at), 'finished_at', us(s.finished_at),
        'max_attempts', s.max_attempts, 'timeout_seconds', s.timeout_seconds, 'ask', s.ask::text, 'digest', s.digest,
        'child', s.child_id, 'wake', s.wake::text, 'waits', s.waits, 'watermark', s.since_mark,
        'on_timeout', s.on_timeout, 'took', coalesce(took -> s.key, '[]')
    )
$$;

create or replace function events_taken(run uuid) returns jsonb language plpgsql stable as $$
begin
    return (
        select jsonb_object_agg(t.step, t.events) from (
            select x.step, jsonb_agg(x.event_seq order by x.event_seq) as events from (
                select r.step, r.event_seq from workflow_receipt as r where r.link = run
                union all
                select r.step, r.event_seq from workflow_receipt as r where r.run_id = run and r.link is null
            ) as x group by x.step
        ) as t
    );
end $$;

create or replace function carried_message(o workflow_outbox) returns json language sql stable as $$
    select json_build_object(
        'id', o.id, 'sink', o.sink, 'created_at', us(o.created_at), 'next_at', us(o.next_at), 'step', o.step, 'key', o.key,
        'payload', o.payload::text, 'status', o.status, 'attempts', o.attempts, 'fence', o.fence,
        'error', o.last_error::text, 'tried_at', us(o.tried_at), 'sent_at', us(o.sent_at)
    )
$$;

-- The next part of one run, from a section and a number on. It ends when it has `budget` bytes. `rows`: its settled steps and
-- its notes, each with its number; `rest`: all else, if no row of these is left.
create or replace function export_part(r workflow_run, section integer, after bigint, budget bigint) returns json
language plpgsql stable as $$
#variable_conflict use_variable
declare
    took jsonb := events_taken(r.id);
    s workflow_step;
    e workflow_event;
    steps json[] := '{}';
    notes json[] := '{}';
    size bigint := 0;
    more json;
begin
    if section = 0 then
        for s in
            select w.* from workflow_step as w where w.run_id = r.id and w.seq > after
                and w.status in ('succeeded', 'failed', 'cancelled') order by w.seq
        loop
            size := size + step_bytes(s);
            if size > budget and cardinality(steps) > 0 then
                more := json_build_array(0, after);
                exit;
            end if;
            steps := steps || carried_step(s, took);
            after := s.seq;
        end loop;
        if more is null then
            after := -1;
        end if;
    end if;
    if more is null then
        for e in select w.* from workflow_event as w where w.workflow_id = r.id and w.id > after order by w.id loop
            size := size + 100 + octet_length(e.data::text);
            if size > budget and (cardinality(steps) > 0 or cardinality(notes) > 0) then
                more := json_build_array(1, after);
                exit;
            end if;
            notes := notes || json_build_object(
                'type', e.event_type, 'at', us(e.created_at), 'data', e.data::text, 'told', e.told
            );
            after := e.id;
        end loop;
    end if;
    if more is null then
        steps := steps || array(
            select carried_step(w, took) from workflow_step as w
            where w.run_id = r.id and w.status not in ('succeeded', 'failed', 'cancelled') order by w.seq
        );
    end if;
    return json_build_object(
        'part', json_build_object(
            'id', r.id, 'tenant', r.tenant, 'chain', r.chain, 'row', case when more is null then carried_row(r) end,
            'steps', array_to_json(steps), 'notes', array_to_json(notes),
            'messages', case when more is null then array_to_json(array(
                select carried_message(o) from workflow_outbox as o where o.run_id = r.id order by o.seq
            )) else '[]' end
        ),
        'after', more, 'revision', r.rev || ' ' || highest_seq(r.id, r.step_mark)
    );
end $$;

-- Runs in their order, or the next part of the first one.
create or replace function export_runs(runs uuid[], section integer, after bigint, budget bigint) returns json
language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    r workflow_run;
    found_part json;
    answer json[] := '{}';
    left_over bigint := budget;
    one uuid;
begin
    foreach one in array runs loop
        select w.* into r from workflow_run as w where w.id = one and w.deleted_at is distinct from '-infinity';
        continue when r.id is null;
        found_part := export_part(r, coalesce(section, 0), coalesce(export_runs.after, -1), left_over);
        exit when cardinality(answer) > 0 and found_part ->> 'after' is not null;
        left_over := left_over - octet_length(found_part::text);
        exit when cardinality(answer) > 0 and left_over < 0;
        answer := answer || found_part;
        exit when left_over <= 0 or section is not null or found_part ->> 'after' is not null;
    end loop;
    return array_to_json(answer);
end $$;

create or replace function export_events(lim integer, after bigint, chain uuid, addressed boolean, budget bigint)
returns json language plpgsql stable set search_path from current set enable_seqscan = off set jit = off as $$
declare
    i workflow_inbox;
    answer json[] := '{}';
    size bigint := 0;
begin
    for i in
        select w.* from workflow_inbox as w
        where w.seq > export_events.after and (export_events.chain is null or w.run_id = export_events.chain)
            and (addressed or w.run_id is null) and not w.late
        order by w.seq limit greatest(lim, 0)
    loop
        size := size + 200 + octet_length(i.payload::text);
        exit when size > budget and cardinality(answer) > 0;
        answer := answer || json_build_object(
            'seq', i.seq, 'id', i.event_id, 'tenant', i.tenant, 'topic', i.topic, 'at', us(i.at),
            'keep_until', us(coalesce(i.keep_until, i.at + span(7 * 86400))), 'payload', i.payload::text,
            'chain', i.run_id, 'delivered', i.delivered, 'woken', i.woken
        );
    end loop;
    return array_to_json(answer);
end $$;
