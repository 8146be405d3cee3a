-- The library's limits on values, for user SQL and for callers of functions: 4 MiB, 64 levels, text without NUL and
-- without half of a surrogate pair, numbers that a reader can hold. The json type checks only the syntax. All checks
-- work on the text, in linear time and without recursion. A cast to jsonb would not: jsonb writes 1e131071 with all its
-- digits, and takes seconds for a large value. Strings with a backslash are written as E'', so that their meaning does
-- not depend on a setting of the session.

-- True when a value must be checked closely. Nearly no value must: this is one expression, and is inlined.
create or replace function may_be_odd(said text) returns boolean language sql immutable parallel safe as $$
    select octet_length(said) > 4194304 or said ~ E'\\\\u|[0-9][eE][+-]?[0-9]{3}|[0-9]{40}'
        or octet_length(said) > 64 and octet_length(said) - octet_length(replace(replace(said, '[', ''), '{', '')) > 64
$$;

-- The fault of a value, as the end of a sentence that begins with its name; null: none. The text is JSON. An encrypted
-- value may be longer than the value inside it.
create or replace function value_fault(said text) returns text language plpgsql immutable parallel safe as $$
declare
    most constant integer := case when starts_with(said, '{"holdfast.sealed"') then 6291456 else 4194304 end;
begin
    if octet_length(said) > most then
        return 'is ' || trim(to_char(octet_length(said), '9,999,999,999')) || ' bytes as JSON, the limit is '
            || trim(to_char(most, '9,999,999')) || ': keep it elsewhere, and record where';
    end if;
    return form_fault(said);
end $$;

-- The fault of a value of any size.
create or replace function form_fault(said text) returns text language plpgsql immutable parallel safe as $$
declare
    bare text;
begin
    if not may_be_odd(said) then
        return null;
    end if;
    bare := regexp_replace(said, E'"(?:[^"\\\\]|\\\\.)*"', '', 'g');
    return coalesce(depth_fault(bare), number_fault(bare), text_fault(said));
end $$;

-- The fault of a value whose strings were removed. The expression is 64 nested levels of brackets, and is matched in
-- one pass.
create or replace function depth_fault(bare text) returns text language plpgsql immutable parallel safe as $$
begin
    if length(bare) - length(replace(replace(bare, '[', ''), '{', '')) <= 64 or translate(
        bare, E'{} \t\n\r,:0123456789+-.eEtrufalsn', '[]'
    ) ~ ('^' || repeat('(?:[[]', 64) || repeat('[]])*', 64) || '$') then
        return null;
    end if;
    return 'is nested deeper than 64 levels';
end $$;

-- Integers may have as many digits as Python reads, other numbers must fit into a double. Small exponents are limited
-- too: jsonb shows 0e-999 with a thousand digits.
create or replace function number_fault(bare text) returns text language plpgsql immutable parallel safe as $$
declare
    one text;
begin
    -- A number with one digit before its point fits, up to an exponent of 307.
    if bare !~ ('[0-9]{250}|[eE][+-]?(?:[0-9]{4}|[4-9][0-9]{2}|3[1-9][0-9]|30[89])'
                || '|(?:^|[^0-9.])[0-9]{2,}(?:[.][0-9]+)?[eE][+-]?[0-9]{3}') then
        return null;
    end if;
    select n into one from unnest(string_to_array(translate(bare, E'[]{}: \t\n\r', ',,,,,,,,,'), ',')) as n
    where case when length(n) > 4300 then true
        when length(n) <= 250 and n !~ '[eE][+-]?[0-9]{3}' then false
        when n ~ '[eE][+-]?(?:[0-9]{4}|[4-9][0-9]{2})' then true
        when n ~ '[.eE]' then abs(n::numeric) > 1.7976931348623158e308
        else false end
    limit 1;
    return 'holds the number ' || left(one, 20) || case when length(one) > 20 then '…' else '' end
        || ', which no double holds';
end $$;

-- The fault of escapes. A backslash that is escaped itself begins no escape.
create or replace function text_fault(said text) returns text language plpgsql immutable parallel safe as $$
declare
    escaped text;
begin
    if strpos(said, E'\\u') = 0 then
        return null;
    end if;
    escaped := replace(said, E'\\\\', '--');
    if strpos(escaped, E'\\u0000') > 0 then
        return 'holds a NUL character, which no store can keep';
    end if;
    escaped := regexp_replace(escaped, E'\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g');
    return case when escaped ~ E'\\\\u[dD][89a-fA-F]' then 'holds half of a surrogate pair, which is no text' end;
end $$;

create or replace function checked_value(what text, value json) returns json language plpgsql immutable as $$
declare
    fault text;
begin
    if may_be_odd(value::text) then
        fault := value_fault(value::text);
        if fault is not null then
            perform refuse('UsageError', what || ' ' || fault);
        end if;
    end if;
    return value;
end $$;

create or replace function checked_labels(labels json) returns json language plpgsql immutable as $$
begin
    if labels is not null then
        perform checked_value('labels', labels);
        perform refuse('UsageError', labels_fault(labels)) where labels_fault(labels) is not null;
    end if;
    return labels;
end $$;

-- A text of a person or a program.
create or replace function checked_text(what text, said text) returns text language plpgsql immutable as $$
begin
    if length(said) > 10000 then
        perform refuse('UsageError', what || ' ' || in_a_line(said) || ': text of at most 10,000 characters, without NUL');
    end if;
    return said;
end $$;

-- The text of an error, cut as the library cuts it: a worker must be able to fail a run with any reason.
create or replace function cut_error(said text) returns text language sql immutable as 'select left(said, 4000)';
