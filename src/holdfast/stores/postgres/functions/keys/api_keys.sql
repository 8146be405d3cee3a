-- API keys. Each verb that changes a key may bring a row for the audit log, which is written in the same commit.

-- A key with the fields of ApiKey; with its hashes only for authentication.
create or replace function key_record(k workflow_api_key, with_hashes boolean) returns json language sql stable as $$
    select json_build_object(
        'id', k.id, 'tenant', k.tenant, 'name', k.name, 'scopes', array_to_json(k.scopes),
        'patterns', array_to_json(k.patterns), 'secret_hash', case when with_hashes then k.secret_hash else '' end,
        'old_secret_hash', case when with_hashes then k.old_secret_hash else '' end,
        'old_secret_until', shown_at(k.old_secret_until), 'expires_at', shown_at(k.expires_at), 'rate', k.rate,
        'open_runs_max', k.open_runs_max, 'created_at', shown_at(k.created_at), 'created_by', k.created_by,
        'last_used_at', shown_at(k.last_used_at), 'rotated_at', shown_at(k.rotated_at),
        'revoked_at', shown_at(k.revoked_at), 'revoked_by', k.revoked_by
    )
$$;

-- Lock API keys: to create one with a name, and to count the open runs of one. Each name: an id, or tenant, U+001F, name.
create or replace function lock_api_keys(names text[]) returns void language sql as
    'select lock_buckets(1752132457, names)';

create or replace function is_key_id(id text) returns boolean language sql immutable as
    $$select id ~ '^[a-z0-9]{12}$'$$;

-- Refuse a key that no store keeps. The message does not show the hash.
create or replace function refuse_odd_key(new json) returns void language plpgsql as $$
declare
    scopes text[] := texts(new -> 'scopes');
begin
    perform checked_tenant(new ->> 'tenant');
    perform checked_name('name', coalesce(new ->> 'name', ''));
    perform checked_text('by', new ->> 'by');
    if not is_key_id(coalesce(new ->> 'id', '')) then
        perform refuse('UsageError', 'id ' || in_a_line(new ->> 'id') || ' is not the id of an API key: 12 characters of a-z and 0-9');
    end if;
    perform checked_hash(new ->> 'secret_hash');
    if scopes = '{}' or not scopes <@ array['runs.read', 'payloads.read', 'runs.write', 'approvals.decide', 'work',
                                           'metrics', 'admin', 'operator'] then
        perform refuse('UsageError', 'scopes of an API key: at least one, and only known ones');
    end if;
    if cardinality(texts(new -> 'patterns')) > 100 or (new ->> 'rate')::double precision not between 0.001 and 10000
            or (new ->> 'open_runs_max')::integer not between 1 and 10000 then
        perform refuse('UsageError', 'an API key has at most 100 patterns, a rate up to 10,000, and up to 10,000 open runs');
    end if;
end $$;

create or replace function checked_hash(secret_hash text) returns text language plpgsql immutable as $$
begin
    if coalesce(secret_hash, '') !~ '^[0-9a-f]{64}$' then
        perform refuse('UsageError', 'secret_hash: give the SHA-256 of a secret as 64 characters of hex');
    end if;
    return secret_hash;
end $$;

create or replace function create_key(new json, audit json) returns json language plpgsql
set search_path from current as $$
declare
    now timestamptz := clock();
    k workflow_api_key;
    other text;
begin
    perform refuse_odd_key(new);
    perform lock_api_keys(array[(new ->> 'tenant') || U&'\001F' || (new ->> 'name')]);
    other := (
        select w.id from workflow_api_key as w
        where w.tenant = new ->> 'tenant' and w.name = new ->> 'name' and w.id <> new ->> 'id'
            and w.revoked_at is null and (w.expires_at is null or w.expires_at > now)
        order by w.id limit 1
    );
    if other is null then
        insert into workflow_api_key (
            id, tenant, name, scopes, patterns, secret_hash, expires_at, rate, open_runs_max, created_at, created_by
        )
        values (
            new ->> 'id', new ->> 'tenant', new ->> 'name', texts(new -> 'scopes'), texts(new -> 'patterns'),
            new ->> 'secret_hash', checked_moment('expires_at', (new ->> 'expires_at')::bigint),
            (new ->> 'rate')::double precision, (new ->> 'open_runs_max')::integer, now, coalesce(new ->> 'by', '')
        )
        on conflict (id) do nothing
        returning * into k;
        if k.id is not null then
            return key_changed(k, audit, now);
        end if;
    end if;
    select * into k from workflow_api_key as w where w.id = new ->> 'id';
    if found and (k.tenant, k.name, k.secret_hash) = (new ->> 'tenant', new ->> 'name', new ->> 'secret_hash') then
        return key_record(k, false);
    elsif found then
        perform refuse('Conflict', 'there is another API key with the id ' || k.id || ': use a new id');
    end if;
    perform refuse('Conflict', 'API key ' || other || ' of this tenant has the name ' || quote_literal(new ->> 'name')
                   || ': revoke it, or use another name');
end $$;

-- Write the audit row of a change. Returns the key as callers see it.
create or replace function key_changed(k workflow_api_key, audit json, now timestamptz) returns json language plpgsql as $$
begin
    if json_typeof(audit) = 'object' then
        perform note_acts(json_build_array(audit), k.tenant, k.id, now);
    end if;
    return key_record(k, false);
end $$;

create or replace function keys(of_tenant text, most bigint, after text, budget bigint default 8388608) returns json
language plpgsql
set search_path from current set cursor_tuple_fraction = 1 set plan_cache_mode = force_custom_plan set jit = off as $$
declare
    records refcursor;
begin
    open records no scroll for select key_record(shown.k, false)::text from (
        select k from workflow_api_key as k
        where (of_tenant is null or k.tenant = of_tenant) and (after is null or k.id > after)
        order by k.id limit greatest(0, most)
    ) as shown;
    return page_of(records, budget);
end $$;

create or replace function find_key(id text) returns json language plpgsql stable set search_path from current as $$
begin
    return coalesce((select key_record(k, true) from workflow_api_key as k where k.id = find_key.id), 'null');
end $$;

create or replace function lock_key(id text, tenant text) returns workflow_api_key language plpgsql as $$
declare
    k workflow_api_key;
begin
    select * into k from workflow_api_key as w
    where w.id = lock_key.id and (lock_key.tenant is null or w.tenant = lock_key.tenant) for no key update;
    if not found then
        perform refuse('UnknownApiKey', 'no API key ' || id, json_build_object('id', id));
    end if;
    return k;
end $$;

create or replace function rotate_key(
    id text, tenant text, secret_hash text, overlap_seconds double precision, audit json
) returns json language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    k workflow_api_key := lock_key(rotate_key.id, rotate_key.tenant);
begin
    perform checked_hash(rotate_key.secret_hash);
    if k.revoked_at is not null then
        perform refuse('Conflict', 'API key ' || k.id || ' is revoked, for good: create another one');
    elsif k.secret_hash = rotate_key.secret_hash then
        return key_record(k, false);
    end if;
    update workflow_api_key as w
    set old_secret_hash = w.secret_hash, old_secret_until = now + span(overlap_seconds),
        secret_hash = rotate_key.secret_hash, rotated_at = now
    where w.id = k.id returning * into k;
    return key_changed(k, audit, now);
end $$;

create or replace function revoke_key(id text, tenant text, who text, audit json) returns json language plpgsql
set search_path from current as $$
declare
    now timestamptz := clock();
    k workflow_api_key := lock_key(revoke_key.id, revoke_key.tenant);
begin
    if k.revoked_at is not null then
        return key_record(k, false);
    end if;
    update workflow_api_key as w set revoked_at = now, revoked_by = coalesce(checked_text('by', who), '')
    where w.id = k.id returning * into k;
    return key_changed(k, audit, now);
end $$;

-- Keys that another session writes just now are left out: that is a use of the same minute.
create or replace function use_keys(ids json) returns void language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
begin
    update workflow_api_key as w set last_used_at = now
    where w.id = any(array(
        select k.id from workflow_api_key as k
        where k.id = any(texts(ids)) and (k.last_used_at is null or k.last_used_at <= now - interval '60 seconds')
        order by k.id for no key update skip locked
    ));
end $$;

-- Remove keys that were revoked or have expired 90 days ago.
create or replace function remove_keys(now timestamptz, most integer) returns integer language plpgsql as $$
declare
    removed integer;
    -- The key with the greatest id stays: a store that had keys never looks like one without.
    kept text = (select k.id from workflow_api_key as k order by k.id desc limit 1);
begin
    delete from workflow_api_key as w where w.id <> kept and w.id = any(array(
        select k.id from workflow_api_key as k where k.revoked_at is not null and k.revoked_at <= now - span(90 * 86400)
        order by k.revoked_at limit most
    ) || array(
        select k.id from workflow_api_key as k where k.expires_at is not null and k.expires_at <= now - span(90 * 86400)
        order by k.expires_at limit most
    ));
    get diagnostics removed = row_count;
    return removed;
end $$;
