-- UPDATE by user SQL, in any language: a cancel, a small change, or a worker that holds a run by nothing but this
-- table. The trigger holds the row's lock and sees its current state. It writes the trail and ends steps before the row
-- is written, so that nothing comes in between. A trigger that returns null leaves the row as it is, and the statement
-- does not count the row: so a worker that lost a race learns of it. Any change that no move allows is refused.

create or replace function plain_update() returns trigger language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    touched text[];
    n workflow_run;
begin
    perform refuse_other_table(tg_relid, 'workflow_run'::regclass);
    new.last_error := cut_error(new.last_error);
    touched := array_remove(differing(old, new), 'updated_at');
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse('UsageError', 'runs can be changed only in a READ COMMITTED transaction: '
                       || 'this transaction is ' || upper(current_setting('transaction_isolation')));
    elsif old.deleted_at is null and new.deleted_at is not null then
        n := plain_delete(old, touched, now);
    elsif old.deleted_at > '-infinity' and new.deleted_at is null then
        n := plain_restore(old, touched, now);
    elsif old.deleted_at is not null then
        return null;
    elsif old.status = 'leased' and new.status in ('leased', 'succeeded', 'failed', 'pending') then
        n := plain_held(old, new, touched, tg_nargs > 0, now);
    elsif old.status = 'pending' and new.status = 'leased' then
        n := plain_claim(old, new, touched, now);
    elsif old.finished_at is null and new.status = 'cancelled' then
        n := plain_cancel(old, new, touched, now);
    elsif new.status = old.status then
        n := plain_edit(old, new, touched);
    else
        perform refuse_plain(old.id, new.status, old.status);
    end if;
    if n.id is null then
        return null;
    end if;
    if old.status = 'leased' and n.fence > old.fence then  -- taken from its holder
        perform call_holders();
    elsif n.status <> old.status and n.status <> 'leased' then
        perform hint();
    end if;
    n.updated_at := now;
    n.rev := old.rev + 1;
    return n;
end $$;

-- The columns in which two rows differ. Values are compared as text, because not every value can be parsed.
create or replace function differing(a workflow_run, b workflow_run) returns text[] language plpgsql immutable as $$
declare
    values text[] := array_remove(array[
        case when a.payload::text is distinct from b.payload::text then 'payload' end,
        case when a.labels::text is distinct from b.labels::text then 'labels' end,
        case when a.progress::text is distinct from b.progress::text then 'progress' end,
        case when a.result::text is distinct from b.result::text then 'result' end,
        case when a.error::text is distinct from b.error::text then 'error' end
    ], null);
begin
    return values || array(
        select x.key from json_each_text(plain_words(a)) as x join json_each_text(plain_words(b)) as y on y.key = x.key
        where x.value is distinct from y.value order by x.key
    );
end $$;

-- A row as JSON, without the values of users.
create or replace function plain_words(r workflow_run) returns json language plpgsql immutable as $$
begin
    r.payload := null;
    r.labels := null;
    r.progress := null;
    r.result := null;
    r.error := null;
    return row_to_json(r);
end $$;

create or replace function plain_cancel(o workflow_run, n workflow_run, touched text[], now timestamptz)
returns workflow_run language plpgsql as $$
begin
    perform refuse_touching(o.id, touched, array['status', 'leased_by', 'lease_until', 'finished_at'], 'the cancel of');
    perform end_steps(o, 'cancelled', null, 0, now);
    n.fence := o.fence + 1;
    n.resume_to := null;
    n.waiting_on := null;
    n.wait_topic := null;
    n.deadline_at := null;
    if exists (select 1 from workflow_run as child where child.parent_id = o.id and child.finished_at is null) then
        n.owes := o.owes | 2;
    end if;
    n := plain_end(n, now);
    perform note(o.id, 'cancelled', json_build_object('by', 'sql:' || session_user)::text, now);
    return n;
end $$;

-- A chain is deleted and restored as a whole.
create or replace function refuse_in_chain(o workflow_run, verb text) returns void language plpgsql as $$
begin
    if o.chain is not null or o.present is not null then
        perform refuse('UsageError', 'run ' || o.id || ' is in a chain: ' || verb || ' the whole of it by select '
                       || current_schema() || '.' || verb || '(run, tenant, who)');
    end if;
end $$;

-- Hide a run, whatever time the statement gives. A leased run is given back, and its holder can write no more.
create or replace function plain_delete(o workflow_run, touched text[], now timestamptz) returns workflow_run
language plpgsql as $$
declare
    n workflow_run := o;
    leased boolean := o.status = 'leased';
    said text := json_build_object('by', 'sql:' || session_user)::text;
begin
    perform refuse_touching(o.id, touched, array['deleted_at'], 'the delete of');
    perform refuse_in_chain(o, 'delete');
    perform note(o.id, 'deleted', case when leased then left(said, -1) || ',"status":"pending"}' else said end, now);
    n.deleted_at := now;
    if leased then
        n.status := 'pending';
        n.run_at := now;
        n.fence := o.fence + 1;
        n.attempt := greatest(0, o.attempt - 1);
        n := plain_let_go(n);
        if o.pause_asked_by is not null then
            n.status := 'paused';
            n.resume_to := 'pending';
            n.pause_asked_by := o.pause_asked_by;
            perform note(o.id, 'paused', json_build_object('by', o.pause_asked_by)::text, now);
        end if;
    end if;
    return n;
end $$;

create or replace function plain_restore(o workflow_run, touched text[], now timestamptz) returns workflow_run
language plpgsql as $$
declare
    n workflow_run := o;
begin
    perform refuse_touching(o.id, touched, array['deleted_at'], 'the restore of');
    perform refuse_in_chain(o, 'restore');
    perform note(o.id, 'restored', json_build_object('by', 'sql:' || session_user)::text, now);
    perform hint();
    n.deleted_at := null;
    return n;
end $$;

-- The end of any run, except for its trail.
create or replace function plain_end(n workflow_run, now timestamptz) returns workflow_run language plpgsql as $$
begin
    n := plain_let_go(n);
    n.finished_at := now;
    n.expires_at := now + span(n.ttl_seconds);
    n.owes := n.owes | case when n.parent_step is null then 0 else 1 end;
    return n;
end $$;

create or replace function plain_let_go(n workflow_run) returns workflow_run language plpgsql as $$
begin
    n.leased_by := null;
    n.lease_until := null;
    n.pause_asked_by := null;
    return n;
end $$;

-- A run that is open and that nobody holds may be moved in the queue, or labelled. A run that is put off does not time
-- out before it is due, as at a start.
create or replace function plain_edit(o workflow_run, n workflow_run, touched text[]) returns workflow_run
language plpgsql as $$
declare
    now timestamptz := clock();
begin
    if o.status = 'pending' then
        perform refuse_touching(o.id, touched, array['priority', 'run_at', 'labels'], 'an update of');
        n.priority := checked_priority(n.priority);
        n.run_at := checked_time(n.run_at);
        n.labels := checked_labels(n.labels);
        if 'run_at' = any(touched) and n.run_at > now then
            n.timeout_at := greatest(o.timeout_at, times_out_at(n.run_at, now, n.timeout_seconds));
        end if;
        if 'priority' = any(touched) then
            perform note(o.id, 'reprioritized', json_build_object(
                'by', 'sql:' || session_user, 'priority', n.priority
            )::text, now);
        end if;
        perform hint();
    elsif touched <> '{}' then
        perform refuse('UsageError', 'run ' || o.id || ' is ' || o.status || ': only priority, run_at and labels of a pending '
                       || 'run are set by an update' || ways(touched));
    end if;
    return n;
end $$;

-- Claim by user SQL. A plan cannot be claimed, because only the verbs can write its steps; neither can a type that is
-- disabled.
create or replace function plain_claim(o workflow_run, n workflow_run, touched text[], now timestamptz)
returns workflow_run language plpgsql as $$
begin
    if o.run_at > now
        or o.kind = 'plan' and exists (select 1 from workflow_step as s where s.run_id = o.id and s.finished_at is null)
        or exists (select 1 from entries_of(array[o.type]) as e where not e.is_enabled) then
        return null;
    end if;
    perform refuse_touching(o.id, touched, array['status', 'leased_by', 'lease_until', 'attempt', 'started_at'], 'the claim of');
    n.leased_by := checked_name('leased_by', coalesce(n.leased_by, ''));
    n.lease_until := checked_lease(n.lease_until, now);
    n.attempt := o.attempt + 1;
    n.fence := o.fence + 1;
    n.plain_fence := n.fence;
    n.pause_asked_by := null;
    n.started_at := o.started_at;
    perform note(o.id, 'leased', json_build_object('worker', n.leased_by, 'attempt', n.attempt, 'fence', n.fence)::text, now);
    return n;
end $$;

create or replace function checked_lease(until timestamptz, now timestamptz) returns timestamptz language plpgsql immutable
as $$
begin
    if until is null or until <= now or until > now + interval '1 day' then
        perform refuse('UsageError', 'lease_until ' || coalesce(until::text, 'null') || ': a time from now to a day ahead; '
                       || 'a lease is short, and is renewed while the work goes on');
    end if;
    return until;
end $$;

-- The writes of a holder with a lease of user SQL, while the lease lasts. `why`: the statement names run_at or an
-- error, with a new value or the same one.
create or replace function plain_held(o workflow_run, n workflow_run, touched text[], why boolean, now timestamptz)
returns workflow_run language plpgsql as $$
begin
    if o.plain_fence <> o.fence or o.lease_until < now then
        return null;
    end if;
    perform refuse_touching(o.id, touched, array['status', 'leased_by', 'lease_until', 'result', 'last_error', 'error',
                                                 'run_at', 'progress', 'finished_at'], 'the worker of');
    if o.started_fence <> o.fence then
        n.started_fence := o.fence;
        n.started_at := coalesce(o.started_at, o.updated_at);  -- the time of the claim: nobody has written since
        perform note(o.id, 'started', json_build_object('at', us(o.updated_at))::text, now);
    end if;
    n.progress := checked_value('progress', n.progress);
    if n.status = 'leased' then
        return plain_renew(o, n, touched, now);
    elsif n.status = 'succeeded' then
        return plain_complete(o, n, now);
    elsif n.status = 'failed' then
        return plain_fail(o, n, 'fatal', now);
    elsif why and o.attempt - o.crashes >= o.max_attempts then
        return plain_fail(o, n, 'exhausted', now);
    end if;
    return plain_give_back(o, n, touched, why, now);
end $$;

create or replace function plain_renew(o workflow_run, n workflow_run, touched text[], now timestamptz)
returns workflow_run language plpgsql as $$
declare
    said_at timestamptz;
begin
    perform refuse_touching(o.id, touched, array['lease_until', 'progress'], 'the heartbeat of');
    if 'lease_until' = any(touched) then
        n.lease_until := checked_lease(n.lease_until, now);
    end if;
    select e.created_at into said_at from workflow_event as e
    where e.workflow_id = o.id and e.event_type in ('heartbeat', 'leased') and not e.told order by e.id desc limit 1;
    if said_at <= now - interval '1 minute' then
        perform note(o.id, 'heartbeat', json_build_object('worker', o.leased_by)::text, now);
    end if;
    return n;
end $$;

create or replace function plain_complete(o workflow_run, n workflow_run, now timestamptz) returns workflow_run
language plpgsql as $$
begin
    perform end_steps(o, 'succeeded', null, o.attempt, now);
    n.result := checked_value('result', n.result);
    n.error := null;
    n.last_error := null;
    n.run_at := o.run_at;
    n := plain_end(n, now);
    perform note(o.id, 'succeeded', '{}', now);
    return n;
end $$;

create or replace function plain_fail(o workflow_run, n workflow_run, kind text, now timestamptz) returns workflow_run
language plpgsql as $$
begin
    n := plain_blame(o, n, kind);
    perform end_steps(o, 'failed', n.error, greatest(0, o.attempt - o.crashes), now);
    n.status := 'failed';
    n.result := null;
    n.run_at := o.run_at;
    n := plain_end(n, now);
    perform note(o.id, 'failed', failed_data(n.error ->> 'kind', n.last_error, o.attempt, o.crashes, o.max_attempts), now);
    return n;
end $$;

-- An error in the usual form: as it was given, otherwise made from its text.
create or replace function plain_blame(o workflow_run, n workflow_run, kind text) returns workflow_run language plpgsql as $$
begin
    if n.error is null or n.error::text is not distinct from o.error::text then
        n.error := blame(kind, coalesce(n.last_error, 'no reason given'), null);
    elsif json_typeof(checked_value('error', n.error)) <> 'object' or json_typeof(n.error -> 'kind') is distinct from 'string'
        or json_typeof(n.error -> 'message') is distinct from 'string' then
        perform refuse('UsageError', 'error ' || left(n.error::text, 60) || ': an object, as in '
                       || '''{"kind": "fatal", "message": "no stock"}''; or set last_error alone');
    elsif n.last_error is not distinct from o.last_error then
        n.last_error := told_in_a_line(n.error);
    end if;
    perform checked_name('kind of error', n.error ->> 'kind');
    n.last_error := cut_error(coalesce(n.last_error, told_in_a_line(n.error)));
    return n;
end $$;

-- Put a run back into the queue, or into a pause that was asked for: as a retry, or as if it had not been claimed.
create or replace function plain_give_back(o workflow_run, n workflow_run, touched text[], why boolean, now timestamptz)
returns workflow_run language plpgsql as $$
declare
    pauses boolean := o.pause_asked_by is not null;
begin
    n.result := o.result;
    n.run_at := case when 'run_at' = any(touched) then greatest(now, checked_time(n.run_at)) else now end;
    if why then
        n := plain_blame(o, n, 'error');
        perform note(o.id, 'retried', '{"attempt":' || greatest(0, o.attempt - o.crashes) || ',"max_attempts":'
                     || o.max_attempts || ',"delay":' || extract(epoch from n.run_at - now)
                     || ',"error":' || n.error || case when pauses then '' else ',"status":"pending"' end || '}', now);
    else
        n.attempt := greatest(0, o.attempt - 1);
        perform note(o.id, 'released', '{}', now);
    end if;
    n := plain_let_go(n);
    if pauses then
        n.status := 'paused';
        n.resume_to := 'pending';
        n.pause_asked_by := o.pause_asked_by;
        perform note(o.id, 'paused', json_build_object('by', o.pause_asked_by)::text, now);
    end if;
    return n;
end $$;
