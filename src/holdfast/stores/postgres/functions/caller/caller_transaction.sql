-- A verb inside the caller's own transaction: the caller's session, rights, isolation level and commit. A refusal is an
-- answer and not an error, so that the caller's transaction can go on. Only a serialization failure or a deadlock, after
-- which the transaction cannot go on, is raised as an error.

-- Identity of this database on this server. No other database has the same one, not even a copy or a restored backup.
-- It changes when the server restarts.
create or replace function database_id() returns text language plpgsql stable as $$
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
    if call ->> 'database_id' <> database_id() then
        return json_build_object('wrong_database', current_database());
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
