-- A verb in somebody else's transaction: his session, his rights, his isolation, his commit. What goes wrong is an answer
-- and no error, so that his transaction stands as it stood. Only where it cannot stand any more is an error an error.

-- Where this is. No other database answers the same, also none that was copied or restored from this one.
create or replace function whereabouts() returns text language plpgsql stable as $$
begin
    return (
        select (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint || '/' || d.oid
        from pg_database as d where d.datname = current_database()
    );
end $$;

create or replace function within(call json) returns json language plpgsql set search_path from current as $$
declare
    answer json;
    code text;
    message text;
    detail text;
begin
    if call ->> 'place' <> whereabouts() then
        return json_build_object('elsewhere', current_database());
    end if;
    case call ->> 'verb'
        when 'start' then
            answer := start(call -> 'runs');
        when 'emit' then
            answer := take_in(call -> 'event', clock(), true);
            perform hint();
    end case;
    return json_build_object('answer', answer::text);
exception
    when serialization_failure or deadlock_detected then
        raise;
    when others then
        get stacked diagnostics code = returned_sqlstate, message = message_text, detail = pg_exception_detail;
        return json_build_object('code', code, 'message', message, 'detail', detail);
end $$;
