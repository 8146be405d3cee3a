-- Gates, and the decisions of people about them.

-- A name as messages show it.
create or replace function quoted(name text) returns text language sql immutable as $$
    select case when position('''' in name) > 0 then '"' || name || '"' else '''' || name || '''' end
$$;

-- The open gates of open runs that are not deleted, oldest run first, behind a gate of a run. If that gate is decided
-- by now, it has another number; then its run is read once more from the beginning.
create or replace function approvals(tenant text, lim integer, after_run uuid, after_step text, budget bigint default 8388608)
returns json language plpgsql stable
set search_path from current set cursor_tuple_fraction = 1 set enable_seqscan = off as $$
declare
    run uuid := coalesce(after_run, '00000000-0000-0000-0000-000000000000');
    place integer := coalesce((
        select s.seq from workflow_step as s where s.run_id = run and s.key = after_step and s.status = 'waiting'
    ), -1);
    records refcursor;
begin
    if approvals.tenant is null then
        open records no scroll for select gate_record(shown.s, shown.r)::text from (
            select s, r from workflow_step as s join workflow_run as r on r.id = s.run_id
            where s.kind = 'approval' and s.status = 'waiting' and (s.run_id, s.seq) > (run, place)
                and r.deleted_at is null
            order by s.run_id, s.seq limit greatest(lim, 0)
        ) as shown;
        return page_of(records, budget);
    end if;
    open records no scroll for select gate_record(shown.s, shown.r)::text from (
        select s, r from workflow_step as s join workflow_run as r on r.id = s.run_id
        where s.kind = 'approval' and s.status = 'waiting' and s.tenant = approvals.tenant
            and (s.run_id, s.seq) > (run, place) and r.deleted_at is null
        order by s.run_id, s.seq limit greatest(lim, 0)
    ) as shown;
    return page_of(records, budget);
end $$;

create or replace function gate_record(s workflow_step, r workflow_run) returns json language sql stable as $$
    select json_build_object(
        'run', r.id, 'type', r.type, 'tenant', r.tenant, 'step', s.key, 'ask_json', s.ask::text, 'digest', s.digest,
        'opened_at', shown_at(coalesce(s.started_at, r.created_at)), 'due_at', shown_at(s.due_at)
    )
$$;

-- The gate that a call means: the only one there has been, or the one with that name. A repeated call must not decide
-- the next gate.
create or replace function meant(run uuid, step text) returns workflow_step language plpgsql as $$
declare
    gates workflow_step[] := array(
        select s from workflow_step as s
        where s.run_id = run and s.kind = 'approval' and s.status <> 'pending' order by s.seq
    );
    s workflow_step;
    names text;
begin
    if step is null and cardinality(gates) = 1 then
        return gates[1];
    end if;
    foreach s in array gates loop
        if s.key = step then
            return s;
        end if;
    end loop;
    select string_agg(quoted(g.key), ', ' order by g.seq) into names from unnest(gates) as g;
    if names is null then
        perform refuse('Conflict', 'run ' || run || ' has no open gate: nothing there waits for a decision');
    elsif step is null then
        perform refuse('Conflict', 'run ' || run || ' has had several gates, name the one you mean: ' || names);
    end if;
    perform refuse('Conflict', 'gate ' || quoted(step) || ' of run ' || run || ' is not open; its gates so far: ' || names);
end $$;

-- Answer `conflict`: the decision is refused, but what was written stays, because a gate whose time was over is settled
-- in any case.
create or replace function decide(
    run uuid, step text, approved boolean, who text, comment text, digest text, tenant text
) returns json language plpgsql set search_path from current set enable_seqscan = off as $$
#variable_conflict use_column
declare
    now timestamptz := clock();
    verb text := case when decide.approved then 'approve' else 'reject' end;
    r workflow_run;
    gate workflow_step;
    undecided boolean;
begin
    perform lock_waits(array[chain_of(decide.run)]);
    r := locked_run(decide.run, decide.tenant, false);
    gate := meant(r.id, decide.step);
    if decide.digest <> coalesce(gate.digest, '') then
        perform refuse('Conflict', 'cannot ' || verb || ' ' || quoted(gate.key) || ' of run ' || r.id
                       || ': what it shows has another digest, ' || coalesce(gate.digest, 'None') || ': look at it again');
    end if;
    undecided := gate.status = 'waiting' and (gate.due_at is null or gate.due_at >= now);
    if undecided then
        perform decided(r, gate, decide.approved, decide.who, decide.comment, false, now);
        perform go_on(r, gate, note(
            r.id, verb || case when decide.approved then 'd' else 'ed' end,
            '{"step":' || to_json(gate.key) || ',"by":' || to_json(decide.who)
            || ',"comment":' || to_json(decide.comment) || led(r, gate), now
        ), now);
    elsif gate.status = 'waiting' then
        perform settle(r, gate, now);
    end if;
    if gate.status = 'waiting' then
        perform hint();
    end if;
    return verdict_on(decidable(r.id, null), step_named(r.id, gate.key), verb, decide.approved, not undecided);
end $$;

create or replace function decidable(run uuid, tenant text) returns workflow_run language plpgsql as $$
declare
    r workflow_run;
begin
    select w.* into r from workflow_run as w
    where w.id = run and w.deleted_at is null and w.tenant = coalesce(decidable.tenant, w.tenant);
    if r.id is null then
        perform refuse_unknown(run);
    end if;
    return r;
end $$;

-- The verdict that is stored by now. The same verdict again gets the first answer; the other verdict is refused.
create or replace function verdict_on(
    r workflow_run, gate workflow_step, verb text, approved boolean, repeated boolean
) returns json language plpgsql as $$
declare
    said json := gate.output;
    before boolean := (said ->> 'approved')::boolean;
    conflict text;
begin
    if said is null then
        perform refuse_move(r.id, verb, r.status, coalesce(
            nullif(send_there(r), ''), 'gate ' || quoted(gate.key) || ' was not decided before'
        ));
    elsif before <> approved then
        conflict := 'cannot ' || verb || ' ' || quoted(gate.key) || ' of run ' || r.id || ': it has been '
            || case when before then 'approved' else 'rejected' end
            || case when (said ->> 'timed_out')::boolean then ', for nobody decided in time'
                    when said ->> 'by' <> '' then ' by ' || (said ->> 'by') else '' end;
    end if;
    return json_build_object('conflict', conflict, 'owes', r.owes > 0, 'decided', json_build_object(
        'step', gate.key, 'repeated', repeated, 'run', run_record(r), 'decision', json_build_object(
            'approved', before, 'by', said ->> 'by', 'comment', said ->> 'comment',
            'at', shown_at(moment((said ->> 'at')::bigint)), 'timed_out', (said ->> 'timed_out')::boolean
        )
    ));
end $$;
