-- Sessions of people who have signed in to the pages.

create or replace function session_record(s workflow_page_session) returns json language sql stable as $$
    select json_build_object(
        'id_hash', s.id_hash, 'key_id', s.key_id, 'secret_hash', s.secret_hash, 'idle_seconds', s.idle_seconds,
        'created_at', shown_at(s.created_at), 'seen_at', shown_at(s.seen_at), 'ends_at', shown_at(s.ends_at),
        'expires_at', shown_at(s.expires_at)
    )
$$;

-- The 100 newest sessions of a key stay. The same call again returns the session.
create or replace function create_session(new json) returns json language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    idle double precision := checked_length('idle_seconds', new ->> 'idle_seconds');
    until timestamptz := now + span(checked_length('keep_seconds', new ->> 'keep_seconds'));
    s workflow_page_session;
begin
    if not coalesce(is_key_id(new ->> 'key_id'), false) then
        perform refuse('UsageError', 'key_id is not the id of an API key: 12 characters of a-z and 0-9');
    end if;
    insert into workflow_page_session (
        id_hash, key_id, secret_hash, idle_seconds, created_at, seen_at, ends_at, expires_at
    )
    values (
        checked_hash(new ->> 'id_hash'), new ->> 'key_id', checked_hash(new ->> 'secret_hash'),
        idle, now, now, least(until, now + span(idle)), until
    )
    on conflict (id_hash) do nothing
    returning * into s;
    if s.id_hash is null then
        select * into s from workflow_page_session as w where w.id_hash = new ->> 'id_hash';
        if (s.key_id, s.secret_hash) is distinct from (new ->> 'key_id', new ->> 'secret_hash') then
            perform refuse('Conflict', 'there is another session with this id: use a new random one');
        end if;
        return session_record(s);
    end if;
    delete from workflow_page_session as w where w.id_hash = any(array(
        select o.id_hash from workflow_page_session as o where o.key_id = s.key_id and o.id_hash <> s.id_hash
        order by o.created_at desc, o.id_hash desc offset 99
    ));
    return session_record(s);
end $$;

create or replace function checked_length(what text, seconds text) returns double precision language plpgsql immutable as $$
begin
    if seconds::double precision between 1 and 366 * 86400 then
        return seconds::double precision;
    end if;
    perform refuse('UsageError', what || ': give a number of seconds from 1 to 31622400');
end $$;

-- A use is written at most once a minute. Another session that writes it just now has the same to say.
create or replace function use_session(id_hash text) returns json language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    s workflow_page_session;
begin
    select * into s from workflow_page_session as w where w.id_hash = use_session.id_hash and w.ends_at > now;
    if not found then
        return 'null';
    elsif s.seen_at > now - interval '60 seconds' then
        return session_record(s);
    end if;
    update workflow_page_session as w
    set seen_at = now, ends_at = least(w.expires_at, now + span(w.idle_seconds))
    where w.id_hash = s.id_hash and w.ends_at > now
    returning * into s;
    return case when s.id_hash is null then 'null' else session_record(s) end;
end $$;

create or replace function end_session(id_hash text) returns void language plpgsql set search_path from current as $$
begin
    delete from workflow_page_session as w where w.id_hash = end_session.id_hash;
end $$;

create or replace function remove_sessions(now timestamptz, most integer) returns integer language plpgsql as $$
declare
    removed integer;
begin
    delete from workflow_page_session as w where w.id_hash = any(array(
        select o.id_hash from workflow_page_session as o where o.ends_at <= now order by o.ends_at limit most
    )) and w.ends_at <= now;
    get diagnostics removed = row_count;
    return removed;
end $$;
