-- Rights of functions. The triggers of user SQL, and a few functions that a restricted role may call, run with the
-- rights of the schema's owner (security definer). So that role needs no right on `rev`, on the trail, on steps or on
-- events. No code of a caller may run inside such a function. Three rules prevent that; decision 28 describes the
-- attacks.
--
-- 1. Every PL/pgSQL function that declares variables has its own search_path, with pg_temp last. PL/pgSQL looks up the
--    types of variables once in a session, at the first call of a function, and keeps them. With the search_path of a
--    caller it would find the caller's types, whose checks are code, and would keep those for the triggers too. Other
--    names in a body are looked up again when the search_path changes.
-- 2. Only the owner, and roles that are granted it, may execute a function. The exceptions are functions that a view, an
--    index or a column default calls, because these are called with the rights of the reader or writer.
-- 3. A trigger function works only on its own table: see tg_relid in each of them.
--
-- The functions of counts/counted.sql that have the owner's rights without a search_path name all schemas instead.
--
-- The session's standard_conforming_strings decides how strings in bodies are read, so functions with the owner's
-- rights set their own.

do $$
declare
    one record;
    named text;
    for_all constant text[] := array['clock()', 'new_id()', 'entries_of(text[])', 'claimable_types()',
                                     'claimable_runs(text)', 'readable(json)', 'fingerprint(json)',
                                     'is_odd_id(uuid, timestamptz)'];
begin
    for one in
        select p.oid::regprocedure as name, l.lanname = 'plpgsql' and p.prosrc ~* '\mdeclare\M'
            and not exists (select 1 from unnest(p.proconfig) as c where starts_with(c, 'search_path=')) as is_open
        from pg_proc as p join pg_language as l on l.oid = p.prolang
        where p.pronamespace = current_schema()::regnamespace and pg_has_role(p.proowner, 'usage') and p.prokind = 'f'
    loop
        if one.is_open then
            execute format('alter function %s set search_path from current', one.name);
        end if;
        if one.name <> all(for_all::regprocedure[]) then
            execute format('revoke execute on function %s from public', one.name);
        end if;
    end loop;
    foreach named in array array[
        'plain_start()', 'plain_started()', 'plain_update()', 'plain_tell()', 'plain_remove()', 'keep_labels()',
        'count_removed()', 'count_truncated()', 'count_told()',
        'readable(json)',
        'emit(json)', 'deliver_event(text, text, json, integer)', 'expire(integer)', 'time_out(integer)',
        'lapse(json, boolean, integer)', 'deliver(json, integer)', 'fold_counts(integer)'
    ] loop
        execute format('alter function %s security definer', named);
        execute format('alter function %s set standard_conforming_strings = on', named);
    end loop;
end $$;
