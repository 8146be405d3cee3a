-- The engine's limits on what people pass in, with the engine's messages: for user SQL, and for callers of functions.

-- The beginning of a text, as a message shows it.
create or replace function in_a_line(said text) returns text language sql immutable as $$
    select '''' || regexp_replace(left(coalesce(said, ''), 40), '[[:cntrl:]]+', ' ', 'g') || ''''
$$;

create or replace function is_type(type text) returns boolean language sql immutable as $$
    select length(type) <= 255 and type ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\.v[1-9][0-9]*$'
$$;

-- A type without its version: it stands for the newest version. `shop.v1` is neither a type nor a bare name.
create or replace function is_bare(type text) returns boolean language sql immutable as $$
    select length(type) <= 255 and type ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$' and type !~ '\.v[0-9]+$'
$$;

create or replace function type_fault(type text) returns text language sql immutable as $$
    select in_a_line(type) || ' is not a workflow type: write domain.action.vN with letters, digits, _ and -, '
        || 'for example ''shop.order.v1'''
$$;

create or replace function is_name(name text) returns boolean language sql immutable as $$
    select name <> '' and length(name) <= 255 and strpos(name, U&'\001F') = 0
$$;

create or replace function name_fault(what text, name text) returns text language sql immutable as $$
    select what || ' ' || in_a_line(name) || ': 1 to 255 characters of text, without NUL or U+001F'
$$;

-- A tenant and the longest topic stand side by side in an index, whose entries hold 2,700 bytes.
create or replace function tenant_fault(tenant text) returns text language sql immutable as $$
    select case when not is_name(tenant) then name_fault('tenant', tenant)
        when octet_length(tenant) > 512
            then 'tenant ' || in_a_line(tenant) || ': a name of at most 512 bytes in UTF-8' end
$$;

create or replace function priority_fault(priority integer) returns text language plpgsql immutable as $$
begin
    return 'priority ' || priority || ': a whole number from 0 to 999, lower goes first';
end $$;

create or replace function attempts_fault(attempts integer) returns text language sql immutable as $$
    select 'max_attempts is ' || attempts || ': at least 1, the first execution counts'
$$;

create or replace function negative_fault() returns text language sql immutable as $$
    select 'budget, ttl_seconds and timeout_seconds are not negative, and a budget is not 0'
$$;

create or replace function time_fault(what text, at text, years text default '1 to 9999') returns text language plpgsql immutable as $$
begin
    return what || ' ' || at || ': a time in the years ' || years;
end $$;

-- Labels with escapes are not checked further: Postgres cannot read some escapes, and the verbs keep them as they are.
create or replace function labels_fault(labels json) returns text language plpgsql immutable as $$
declare
    is_object boolean := json_typeof(labels) = 'object';
begin
    if not is_object or position('\u' in labels::text) = 0 and exists (
        select 1 from json_each(case when is_object then labels else '{}' end) as l where json_typeof(l.value) <> 'string'
    ) then
        return 'labels ' || left(labels::text, 60) || ': an object of text, as in ''{"team": "billing"}''';
    end if;
    return null;
end $$;

-- True when a start through the function may have a fault. It has few terms, which are inlined into the calling
-- statement: nearly all starts have no fault. A published type is valid. Only times that Python cannot hold are
-- refused; durations are bounded anyway.
create or replace function is_odd_start(
    type text, is_known boolean, tenant text, key text, limit_key text, priority integer, run_at bigint,
    max_attempts integer, budget bigint, labels text, params text
) returns boolean language sql stable as $$
    select (
        not is_known and not is_type(type) or length(tenant) not between 1 and 255 or octet_length(tenant) > 512 or length(key) not between 1 and 255
        or length(limit_key) not between 1 and 255 or strpos(concat(tenant, key, limit_key), U&'\001F') > 0
        or priority not between 0 and 999 or run_at not between -62135596800000000 and 253402300799999999
        or least(max_attempts, budget) < 1
        or labels is not null and (may_be_odd(labels) or labels_fault(labels::json) is not null)
        or may_be_odd(params)
    ) is true
$$;

-- The fault of a start; null: none.
create or replace function start_fault(
    type text, is_known boolean, tenant text, key text, limit_key text, priority integer, run_at bigint,
    max_attempts integer, budget bigint, labels text, params text
) returns text language sql stable as $$
    select case
        when not is_known and not is_type(type) then type_fault(type)
        when tenant_fault(tenant) is not null then tenant_fault(tenant)
        when not is_name(key) then name_fault('key', key)
        when not is_name(limit_key) then name_fault('limit_key', limit_key)
        when priority not between 0 and 999 then priority_fault(priority)
        when run_at not between -62135596800000000 and 253402300799999999 then time_fault('run_at', run_at::text)
        when max_attempts < 1 then attempts_fault(max_attempts)
        when budget < 1 then negative_fault()
        when value_fault(params) is not null then 'params ' || value_fault(params)
        when labels is not null then coalesce('labels ' || value_fault(labels), labels_fault(labels::json))
    end
$$;

-- Refuse an event with a field that is not a valid name.
create or replace function refuse_odd_event(tenant text, topic text, id text, payload text) returns void
language plpgsql as $$
begin
    if coalesce(topic, '') = '' or length(topic) > 512 then
        perform refuse('UsageError', 'topic ' || in_a_line(topic) || ': 1 to 512 characters of text, without NUL');
    end if;
    perform checked_name('event id', coalesce(id, ''));
    perform checked_tenant(tenant);
    perform refuse('UsageError', 'payload ' || value_fault(payload)) where value_fault(payload) is not null;
end $$;

create or replace function checked_type(type text) returns text language plpgsql immutable as $$
begin
    if not is_type(type) then
        perform refuse('UsageError', type_fault(type));
    end if;
    return type;
end $$;

create or replace function checked_name(what text, name text) returns text language plpgsql immutable as $$
begin
    if not is_name(name) then
        perform refuse('UsageError', name_fault(what, name));
    end if;
    return name;
end $$;

create or replace function checked_tenant(tenant text) returns text language plpgsql immutable as $$
begin
    perform refuse('UsageError', tenant_fault(tenant)) where tenant_fault(tenant) is not null;
    return tenant;
end $$;

create or replace function checked_priority(priority integer) returns integer language plpgsql immutable as $$
begin
    if priority not between 0 and 999 then
        perform refuse('UsageError', priority_fault(priority));
    end if;
    return priority;
end $$;

-- A time that every reader can show.
create or replace function checked_time(at timestamptz) returns timestamptz language plpgsql immutable as $$
begin
    if at not between '1970-01-01 00:00:00+00' and '9999-01-01 00:00:00+00' then
        perform refuse('UsageError', time_fault('run_at', at::text, '1970 to 9998'));
    end if;
    return at;
end $$;

create or replace function checked_moment(what text, us bigint) returns timestamptz language plpgsql immutable as $$
begin
    if us not between -62135596800000000 and 253402300799999999 then
        perform refuse('UsageError', time_fault(what, us::text));
    end if;
    return moment(us);
end $$;
