-- What runs with the rights of the schema's owner: the triggers of plain SQL, and the few functions that a role of plain SQL
-- may call. So that role needs no right on `rev`, on the trail, on steps or on events, by which it could write past all
-- moves. Each has a search_path of its own already, with pg_temp last; and a setting that the session may not change
-- either, for it decides how strings in the bodies are read.
-- A function that sends events or keeps is not for everyone who may look into the schema.

do $$
declare
    name text;
begin
    foreach name in array array['plain_start()', 'plain_started()', 'plain_update()', 'plain_tell()', 'plain_remove()'] loop
        execute format('alter function %s security definer', name);
        execute format('alter function %s set standard_conforming_strings = on', name);
    end loop;
    foreach name in array array[
        'emit(json)', 'deliver_event(text, text, json, integer)', 'expire(integer)', 'time_out(integer)',
        'lapse(json, boolean, integer)', 'deliver(json, integer)'
    ] loop
        execute format('alter function %s security definer', name);
        execute format('alter function %s set standard_conforming_strings = on', name);
        execute format('revoke execute on function %s from public', name);
    end loop;
end $$;
