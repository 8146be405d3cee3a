-- start: record runs. The key is checked before the id. An error is the answer of its own item alone.

create or replace function start(runs json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
    answers json;
begin
    if exists (select 1 from workflow_definition as d where d.kind = 'plan') then
        perform lock_topics(plan_topics(runs));
    end if;
    answers := start_runs(runs, null, clock(), true);
    perform hint();
    return answers;
end $$;

-- The topics that a plan looks at when it is started, before its first task. They are locked before anything is
-- written.
create or replace function plan_topics(runs json) returns text[] language plpgsql stable as $$
begin
    return (
        select array_agg(n.tenant || U&'\001F' || (s.step ->> 'topic'))
        from json_to_recordset(runs) as n (type text, tenant text)
        join workflow_definition as d on d.type = n.type and d.kind = 'plan'
        cross join json_array_elements(d.steps) with ordinality as s (step, place)
        where s.step ->> 'topic' is not null and s.place < all(
            select t.place from json_array_elements(d.steps) with ordinality as t (step, place)
            where coalesce(t.step ->> 'kind', 'task') = 'task'
        )
    );
end $$;

-- A duration as it is stored: in whole microseconds, and not longer than any calendar.
create or replace function bounded(seconds double precision) returns double precision language sql immutable as
    'select round((case when seconds > 31557600000 then 31557600000 when seconds < -31557600000 then -31557600000
        else seconds end) * 1000000) / 1000000';

-- Start runs inside any verb. `starter`: the run whose commit starts them. Only runs from outside are refused for their
-- content: a holder's commit must not be refused, or its run could never end.
create or replace function start_runs(runs json, starter uuid, now timestamptz, from_outside boolean) returns json
language plpgsql as $$
declare
    mark bigint := inbox_mark();
    first bigint := first_fence();
    answers json[];
    made uuid[];
    plain boolean;
    in_any_order boolean;
    limited text[];
    open_runs jsonb := '{}';
    is_short boolean := false;
    one record;
begin
    select bool_and(coalesce(d.kind, 'code') <> 'plan' and n.origin is null
        and not coalesce(n.covers_children or d.covers_children, false) and (n.parent is null or (
        select 1 from workflow_run as p where p.id = n.parent and p.tenant = n.tenant and p.deleted_at is null limit 1
    ) is not null)) and count(distinct n.id) = count(*), count(distinct n.id) = count(*) and bool_and(n.parent is null),
        array_agg(n.api_key) filter (where n.open_runs_max is not null)
    into plain, in_any_order, limited
    from json_to_recordset(runs) as n (
        id uuid, type text, tenant text, parent uuid, origin uuid, covers_children boolean, api_key text,
        open_runs_max integer
    )
    left join workflow_definition as d on d.type = n.type;
    if limited is not null and from_outside then
        perform lock_api_keys(limited);
        open_runs := count_open_runs(limited);
        is_short := has_no_room(runs, open_runs);
    end if;
    if is_short then
        in_any_order := false;
    elsif plain then
        made := start_plain(runs, mark, first, now, from_outside);
        if coalesce(array_length(made, 1), 0) = json_array_length(runs) then
            return (select json_agg(json_build_object('id', id, 'created', true)) from unnest(made) as id);
        end if;
    end if;
    for one in
        select i.item, i.place::integer from json_array_elements(runs) with ordinality as i (item, place)
        order by case when in_any_order then i.item ->> 'key' end, i.place
    loop
        answers[one.place] := case when (one.item ->> 'id')::uuid = any(made)
            then json_build_object('id', one.item ->> 'id', 'created', true)
            else start_run(one.item, mark, first, starter, now, from_outside,
                           (open_runs ->> (one.item ->> 'api_key'))::integer) end;
        if open_runs ? (one.item ->> 'api_key') and (answers[one.place] ->> 'created')::boolean then
            open_runs := open_runs || jsonb_build_object(
                one.item ->> 'api_key', (open_runs ->> (one.item ->> 'api_key'))::integer + 1
            );
        end if;
    end loop;
    return coalesce(array_to_json(answers), '[]');
end $$;

-- The number of open runs of each of these API keys, which the caller has locked. Only a new statement sees what the
-- lock has waited for. Nobody may have more than 10,000.
create or replace function count_open_runs(keys text[]) returns jsonb language plpgsql
set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    return (
        select jsonb_object_agg(k.key, (select count(*) from (
            select 1 from workflow_run as r where r.api_key = k.key and r.finished_at is null limit 10000
        ) as o)) from (select distinct u.key from unnest(keys) as u (key) where u.key is not null) as k
    );
end $$;

-- Whether some of these runs may be above the limits of their API keys. True also for a limit that must be refused.
create or replace function has_no_room(runs json, open_runs jsonb) returns boolean language plpgsql stable as $$
begin
    return exists (
        select 1 from json_to_recordset(runs) as n (api_key text, open_runs_max integer)
        group by n.api_key having count(n.open_runs_max) > 0 and (
            n.api_key is null or max(n.open_runs_max) > 10000
            or (open_runs ->> n.api_key)::integer + count(*) > min(n.open_runs_max)
        )
    );
end $$;

-- After an insert that has waited for another open transaction: meanwhile runs may have been claimed and purged, even
-- under the same ids. So the fences are raised again.
create or replace function raise_fences(runs uuid[], asked_at timestamptz, now timestamptz) returns void
language plpgsql as $$
begin
    if clock_timestamp() > asked_at + interval '50 milliseconds' + cardinality(runs) * interval '1 millisecond' then
        update workflow_run as r set fence = first_fence(), updated_at = now, rev = r.rev + 1
        where r.id = any(runs) and r.fence < first_fence();
    end if;
end $$;

-- Start runs without a plan whose parents exist, many at once. Keys are inserted in one order, or two calls with the
-- same keys would wait for each other. Anything unusual is left to start_run, which names the fault.
create or replace function start_plain(
    runs json, mark bigint, first bigint, now timestamptz, from_outside boolean
) returns uuid[] language plpgsql as $$
declare
    asked_at timestamptz := clock_timestamp();
    made uuid[];
begin
    with n as materialized (
        select n.*, d.type is not null as is_known, d.max_attempts as known_attempts, d.timeout_seconds as known_timeout,
            d.budget as known_budget, coalesce(n.timeout_seconds, d.timeout_seconds) as lasts
        from rows from (json_to_recordset(runs) as (
            id uuid, type text, params text, digest text, tenant text, key text, priority integer, run_at bigint,
            delay_seconds double precision, max_attempts integer, timeout_seconds double precision,
            ttl_seconds double precision, budget bigint, limit_key text, labels text, parent uuid, parent_step text,
            trace text, by text, api_key text
        )) with ordinality as n (
            id, type, params, digest, tenant, key, priority, run_at, delay_seconds, max_attempts, timeout_seconds,
            ttl_seconds, budget, limit_key, labels, parent, parent_step, trace, by, api_key, place
        )
        left join workflow_definition as d on d.type = n.type
    ), inserted as (
        insert into workflow_run (
            id, tenant, type, payload, priority, run_at, idempotency_key, digest, max_attempts, parent_id, parent_step,
            limit_key, labels, budget, timeout_seconds, timeout_at, ttl_seconds, inbox_mark, fence, rev, created_at,
            updated_at, trace, account, api_key
        )
        select n.id, n.tenant, n.type, n.params::json, n.priority,
            coalesce(moment(n.run_at), now + span(coalesce(n.delay_seconds, 0))), stored_key(n.tenant, n.key), n.digest,
            coalesce(n.max_attempts, nullif(n.known_attempts, 0), 3), n.parent, n.parent_step, n.limit_key, n.labels::json,
            coalesce(n.budget, n.known_budget), bounded(n.lasts),
            times_out_at(coalesce(moment(n.run_at), now + span(coalesce(n.delay_seconds, 0))), now, n.lasts),
            bounded(n.ttl_seconds), mark, first, 1, now, now, nullif(n.trace, ''),
            case when n.parent is not null then (select p.account from workflow_run as p where p.id = n.parent) end,
            case when from_outside then n.api_key end
        from n
        where not is_odd_start(n.type, n.is_known, n.tenant, n.key, n.limit_key, n.priority, n.run_at, n.max_attempts,
                               n.budget, n.labels, n.params)
            and coalesce(length(n.trace), 0) <= 10000 and coalesce(length(n.by), 0) <= 10000
            and (n.api_key is null or is_key_id(n.api_key))
        order by stored_key(n.tenant, n.key), n.place
        on conflict do nothing
        returning id
    ), trail_rows as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select n.id, 'created', ('{"type":' || to_json(n.type)::text || by_whom(n.by) || '}')::json, now, false
        from n join inserted on inserted.id = n.id order by n.place
    )
    select array_agg(n.id order by n.place) into made from n join inserted on inserted.id = n.id;
    perform raise_fences(made, asked_at, now);
    return made;
end $$;

-- The end of the data of a `created` row that says who has started the run. Stable, as to_json is: an immutable function
-- would not be inlined, and would cost 40 us.
create or replace function by_whom(who text) returns text language sql stable as
    $$select case when who <> '' then ',"by":' || to_json(who)::text else '' end$$;

-- Start one run that has a parent, a plan, another run under its key or id, or a limit on the open runs of its API key.
-- `open_runs`: how many the key has.
create or replace function start_run(
    item json, mark bigint, first bigint, starter uuid, now timestamptz, from_outside boolean, open_runs integer
) returns json language plpgsql as $$
declare
    n record;
    d workflow_definition;
    r workflow_run;
    there record;
    full_key text;
    asked_at timestamptz;
    fault text;
begin
    select * into n from json_to_record(item) as n (
        id uuid, type text, params text, digest text, tenant text, key text, priority integer, run_at bigint,
        delay_seconds double precision, max_attempts integer, timeout_seconds double precision,
        ttl_seconds double precision, budget bigint, limit_key text, parent uuid, parent_step text, labels text,
        trace text, follows uuid, origin uuid, covers_children boolean, by text, api_key text, open_runs_max integer
    );
    select * into d from workflow_definition as w where w.type = n.type;
    if from_outside then
        fault := start_fault(n.type, d.type is not null, n.tenant, n.key, n.limit_key, n.priority, n.run_at,
                             n.max_attempts, n.budget, n.labels, n.params);
        if fault is not null then
            perform refuse('UsageError', fault);
        end if;
        perform checked_text('trace', n.trace);
        perform checked_text('by', n."by");
        if not coalesce(is_key_id(n.api_key), n.open_runs_max is null) or n.open_runs_max not between 1 and 10000 then
            perform refuse('UsageError', 'api_key is the id of an API key, and open_runs_max a number from 1 to 10,000');
        end if;
    end if;
    full_key := stored_key(n.tenant, n.key);
    if full_key is not null then
        select w.id, is_same(w, n.type, n.digest, n.params) as same into there
        from workflow_run as w where w.idempotency_key = full_key;
        if found then
            return same_key(there.id, there.same);
        end if;
    end if;
    if n.parent is not null and not exists (
        select 1 from workflow_run as p where p.id = n.parent and p.tenant = n.tenant and p.deleted_at is null
    ) and not (starter is not null and exists (
        -- A run that continues a child is a child of the same parent, even if that parent is gone by now.
        select 1 from workflow_run as k where k.id = starter and k.parent_id = n.parent and k.tenant = n.tenant
    )) then
        if exists (select 1 from workflow_run as w where w.id = n.id) then
            return json_build_object('error', 'duplicate_run', 'id', n.id);
        end if;
        return json_build_object('error', 'unknown_run', 'id', n.parent);
    end if;
    if open_runs >= n.open_runs_max then
        if exists (select 1 from workflow_run as w where w.id = n.id) then
            -- Perhaps the same start again: it may have taken the last place.
            return json_build_object('error', 'duplicate_run', 'id', n.id);
        end if;
        return json_build_object('error', 'too_many_runs', 'id', n.id);
    end if;
    asked_at := clock_timestamp();
    insert into workflow_run as w (
        id, tenant, type, kind, payload, priority, run_at, idempotency_key, digest, max_attempts, parent_id,
        parent_step, limit_key, labels, budget, timeout_seconds, timeout_at, ttl_seconds, inbox_mark, fence, rev,
        created_at, updated_at, trace, origin, account, api_key
    )
    values (
        n.id, n.tenant, n.type, coalesce(d.kind, 'code'), n.params::json, n.priority,
        coalesce(moment(n.run_at), now + span(coalesce(n.delay_seconds, 0))), full_key, n.digest,
        coalesce(n.max_attempts, nullif(d.max_attempts, 0), 3), n.parent, n.parent_step, n.limit_key, n.labels::json,
        coalesce(n.budget, d.budget), bounded(coalesce(n.timeout_seconds, d.timeout_seconds)),
        times_out_at(
            coalesce(moment(n.run_at), now + span(coalesce(n.delay_seconds, 0))), now,
            coalesce(n.timeout_seconds, d.timeout_seconds)
        ),
        bounded(n.ttl_seconds), mark, first, 1, now, now, nullif(n.trace, ''), n.origin,
        account_of(n.id, n.parent, n.follows is null and coalesce(n.covers_children or d.covers_children, false),
                   coalesce(n.budget, d.budget)),
        case when from_outside then n.api_key end
    )
    on conflict do nothing
    returning * into r;
    if r.id is null then
        -- Another session was faster and has committed: the run under the key is visible now.
        select w.id, is_same(w, n.type, n.digest, n.params) as same into there
        from workflow_run as w where w.idempotency_key = full_key;
        if found then
            return same_key(there.id, there.same);
        end if;
        return json_build_object('error', 'duplicate_run', 'id', n.id);
    end if;
    perform raise_fences(array[r.id], asked_at, now);
    perform begin_run(r, d, now, n."by");
    return json_build_object('id', r.id, 'created', true);
end $$;

-- Write what a start adds to the row: the trail, and for a plan its steps, of which the first becomes current.
create or replace function begin_run(r workflow_run, d workflow_definition, now timestamptz, who text) returns void
language plpgsql as $$
declare
    names json;
    more text := case when r.origin is null then '' else ',"origin":"' || r.origin || '"' end || by_whom(coalesce(who, ''));
begin
    if r.account = r.id then
        insert into workflow_account (id, budget) values (r.id, r.budget);
    end if;
    if r.kind <> 'plan' or d.steps is null then
        perform note(r.id, 'created', '{"type":' || to_json(r.type)::text || more || '}', now);
        return;
    end if;
    select json_agg(s.step ->> 'name' order by s.place) into names
    from json_array_elements(d.steps) with ordinality as s (step, place);
    perform note(r.id, 'created', '{"type":' || to_json(r.type)::text || ',"steps":' || names::text || more || '}', now);
    perform insert_plan(r.id, d.steps, r.tenant, r.max_attempts);
    if coalesce(d.steps -> 0 ->> 'kind', 'task') <> 'task' then
        perform apply_plan(r, come_to(r, null, now), now, null, false);
    end if;
end $$;

-- True when this is the same call again. A run that user SQL started has no digest: its values are compared, in
-- whatever form they were written.
create or replace function is_same(r workflow_run, type text, digest text, params text) returns boolean
language plpgsql immutable as $$
begin
    return r.digest = is_same.digest
        or r.digest = 'sql' and r.type = is_same.type
        and (r.payload::text = is_same.params or r.payload::jsonb = is_same.params::jsonb);
exception when data_exception or program_limit_exceeded then
    return false;  -- a value that only json can hold
end $$;

create or replace function same_key(run uuid, same boolean) returns json language sql immutable as $$
    select case when same then json_build_object('id', run, 'created', false)
        else json_build_object('error', 'key_reused', 'id', run) end
$$;
