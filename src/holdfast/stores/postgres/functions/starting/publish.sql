-- publish, present, absent: the workflows that can be run, and the workers that are there to run them.

create or replace function publish(definitions json) returns json language plpgsql set search_path from current as $$
declare
    refused text;
begin
    -- The same definitions again write nothing, and wait for no lock.
    if not exists (select 1 from unlike_published(definitions)) then
        return 'null';
    end if;
    -- The rows that are compared must not change until this commits: two versions of one plan cannot both be the first.
    -- Starts can still read.
    lock table workflow_definition in share row exclusive mode;
    select u.type || ' has been published with '
        || case when u.other_kind then 'the kind ' || u.was else 'other steps' end || ': bump its version, as in '
        || substring(u.type from '^(.*)\.v') || '.v' || 1 + substring(u.type from '^.*\.v(\d+)$')::numeric
    into refused
    from unlike_published(definitions) as u where u.other_kind or u.other_steps order by u.place limit 1;
    if refused is not null then
        perform refuse('Conflict', refused);
    end if;
    select u.type into refused from unlike_published(definitions) as u
    where not is_type(u.type) or not is_plan(u.steps)
        or greatest(length(u.params_schema), length(u.result_schema)) > 16384
    order by u.place limit 1;
    if found then
        perform refuse('UsageError', 'the definition of ' || in_a_line(refused)
            || ' cannot be read: a type as in shop.order.v1, steps that are objects with name and kind, '
            || 'and schemas of at most 16,384 characters');
    end if;
    insert into workflow_definition as d (
        type, kind, max_attempts, timeout_seconds, budget, covers_children, description, steps, params_schema,
        result_schema, updated_at
    )
    select u.type, u.kind, u.max_attempts, u.timeout_seconds, u.budget, u.covers_children, u.description, u.steps,
        u.params_schema, u.result_schema, clock()
    from unlike_published(definitions) as u
    on conflict (type) do update
    set kind = excluded.kind, max_attempts = excluded.max_attempts, timeout_seconds = excluded.timeout_seconds,
        budget = excluded.budget, covers_children = excluded.covers_children, description = excluded.description,
        steps = excluded.steps, params_schema = excluded.params_schema, result_schema = excluded.result_schema,
        updated_at = excluded.updated_at;
    return 'null';
end $$;

-- True when these are steps that readers know: objects with a name, of a known kind.
create or replace function is_plan(steps json) returns boolean language plpgsql immutable as $$
begin
    return steps is null or not exists (
        select 1 from json_array_elements(steps) as step
        where json_typeof(step) <> 'object' or coalesce(step ->> 'name', '') = ''
            or coalesce(step ->> 'kind', 'task') not in ('task', 'approval', 'event', 'sleep')
    );
end $$;

-- The steps of a plan in one form, whoever wrote them: fields that are left out get their defaults.
create or replace function plan_of(steps json) returns text[] language plpgsql immutable as $$
begin
    return (
        select coalesce(array_agg(row(
            s.step ->> 'name', coalesce(s.step ->> 'kind', 'task'), (s.step ->> 'max_attempts')::integer,
            s.step ->> 'topic', (s.step ->> 'timeout_seconds')::double precision, s.step ->> 'ask', s.step ->> 'digest',
            coalesce(s.step ->> 'on_timeout', 'reject')
        )::text order by s.place), '{}')
        from json_array_elements(steps) with ordinality as s (step, place)
    );
end $$;

-- The definitions that differ from what is published; of several for one type the last.
create or replace function unlike_published(definitions json)
returns table (
    type text, kind text, max_attempts integer, timeout_seconds double precision, budget bigint, covers_children boolean,
    description text, steps json, params_schema text, result_schema text, place bigint, was text, other_kind boolean,
    other_steps boolean
) language sql stable as $$
    select n.type, n.kind, n.max_attempts, n.timeout_seconds, n.budget, n.covers_children, n.description, n.steps,
        n.params_schema, n.result_schema, n.place, d.kind,
        d.type is not null and n.kind <> d.kind, d.type is not null and plan_of(n.steps) <> plan_of(d.steps)
    from (
        select distinct on (n.type) n.type, coalesce(n.kind, 'code') as kind, n.max_attempts, n.timeout_seconds,
            n.budget, coalesce(n.covers_children, false) as covers_children,
            coalesce(n.description, '') as description, n.place, n.params_schema, n.result_schema,
            case when json_array_length(coalesce(n.steps, '[]')) > 0 then n.steps end as steps
        from rows from (json_to_recordset(definitions) as (
            type text, kind text, max_attempts integer, timeout_seconds double precision, budget bigint,
            covers_children boolean, description text, steps json, params_schema text, result_schema text
        )) with ordinality as n (
            type, kind, max_attempts, timeout_seconds, budget, covers_children, description, steps, params_schema,
            result_schema, place
        )
        order by n.type, n.place desc
    ) as n
    left join workflow_definition as d on d.type = n.type
    where d.type is null or (
        d.kind, d.max_attempts, d.timeout_seconds, d.budget, coalesce(d.covers_children, false), d.description,
        d.steps::text, d.params_schema, d.result_schema
    ) is distinct from (
        n.kind, n.max_attempts, n.timeout_seconds, n.budget, n.covers_children, n.description, n.steps::text,
        n.params_schema, n.result_schema
    )
$$;

create or replace function present(presence json) returns json language plpgsql set search_path from current as $$
begin
    if exists (
        select 1 from json_each(checked_value('presence', presence)) as p
        where p.key in ('types', 'patterns', 'tenants', 'sinks') and json_typeof(p.value) <> 'null' and not is_texts(p.value)
    ) or not coalesce(is_lists(presence -> 'lacking'), true) then
        perform refuse('UsageError', 'types, patterns, tenants and sinks of a worker are lists of text, '
                       || 'and lacking is an object of such lists');
    end if;
    insert into workflow_worker as w (
        worker, types, patterns, tenants, runtime, slots, stragglers, sinks, lacking, library, seen_at
    )
    select p.worker, coalesce(p.types, '[]'), coalesce(p.patterns, '["%"]'), p.tenants, coalesce(p.runtime, 'python'),
        coalesce(p.slots, 0), coalesce(p.stragglers, 0), coalesce(p.sinks, '[]'), coalesce(p.lacking, '{}'),
        coalesce(p.library, ''), clock()
    from json_to_record(presence) as p (
        worker text, types json, patterns json, tenants json, runtime text, slots integer, stragglers integer,
        sinks json, lacking json, library text
    )
    on conflict (worker) do update
    set types = excluded.types, patterns = excluded.patterns, tenants = excluded.tenants, runtime = excluded.runtime,
        slots = excluded.slots, stragglers = excluded.stragglers, sinks = excluded.sinks, lacking = excluded.lacking,
        library = excluded.library, seen_at = excluded.seen_at;
    return 'null';
end $$;

-- True when every reader can take the value for a list of texts.
create or replace function is_texts(list json) returns boolean language plpgsql immutable as $$
begin
    return json_typeof(list) = 'array' and not exists (
        select 1 from json_array_elements(case when json_typeof(list) = 'array' then list else '[]' end) as one
        where json_typeof(one) <> 'string'
    );
end $$;

create or replace function is_lists(lists json) returns boolean language plpgsql immutable as $$
begin
    return json_typeof(lists) = 'null' or json_typeof(lists) = 'object' and not exists (
        select 1 from json_each(case when json_typeof(lists) = 'object' then lists else '{}' end) as one
        where not is_texts(one.value)
    );
end $$;

create or replace function absent(worker text) returns json language plpgsql set search_path from current as $$
begin
    delete from workflow_worker as w where w.worker = absent.worker;
    return 'null';
end $$;
