-- The registry: which runtime executes a type, and whether the type is enabled.

-- The registry entry of each type: that of the type itself, otherwise that of its name without version.
create or replace function entries_of(types text[])
returns table (type text, entry text, runtime text, is_enabled boolean) language sql stable as $$
    select t.type, e.workflow_name, e.runtime, e.is_enabled
    from (select distinct unnest(types) as type) as t
    cross join lateral (
        select g.workflow_name, g.runtime, g.is_enabled from workflow_registry as g
        where g.workflow_name in (t.type, substring(t.type from '^(.*)[.]v'))
        order by g.workflow_name = t.type desc limit 1
    ) as e
$$;

-- The types that the registry leaves to this runtime, each once.
create or replace function open_types(types text[], runtime text) returns text[] language plpgsql stable as $$
begin
    return array(
        select distinct t.type from unnest(types) as t (type)
        where not exists (
            select 1 from entries_of(array[t.type]) as e
            where not e.is_enabled or e.runtime <> open_types.runtime
        )
        order by t.type
    );
end $$;

create or replace function registration(g workflow_registry) returns json language sql stable as $$
    select json_build_object(
        'workflow_name', g.workflow_name, 'runtime', g.runtime, 'is_enabled', g.is_enabled,
        'description', g.description, 'intent_type', g.intent_type,
        'created_at', shown_at(g.created_at), 'updated_at', shown_at(g.updated_at)
    )
$$;

create or replace function registry() returns json language plpgsql stable set search_path from current as $$
begin
    return (select coalesce(json_agg(registration(g) order by g.workflow_name), '[]') from workflow_registry as g);
end $$;

-- Fields that are not given keep their values.
create or replace function register(name text, given json) returns json language plpgsql
set search_path from current as $$
#variable_conflict use_column
declare
    now timestamptz := clock();
    made workflow_registry;
begin
    perform lock_limits();
    insert into workflow_registry as g
        (workflow_name, runtime, is_enabled, description, intent_type, created_at, updated_at)
    values (
        register.name, coalesce(given ->> 'runtime', 'python'), coalesce((given ->> 'is_enabled')::boolean, true),
        coalesce(given ->> 'description', ''), coalesce(given ->> 'intent_type', 'workflow'), now, now
    )
    on conflict (workflow_name) do update
    set runtime = coalesce(given ->> 'runtime', g.runtime),
        is_enabled = coalesce((given ->> 'is_enabled')::boolean, g.is_enabled),
        description = coalesce(given ->> 'description', g.description),
        intent_type = coalesce(given ->> 'intent_type', g.intent_type), updated_at = now
    returning * into made;
    perform hint();
    return registration(made);
end $$;

create or replace function unregister(name text) returns json language plpgsql set search_path from current as $$
declare
    there boolean;
begin
    perform lock_limits();
    delete from workflow_registry where workflow_name = unregister.name;
    there := found;
    perform hint();
    return to_json(there);
end $$;
