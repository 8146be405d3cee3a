-- Search of a text in the values of runs. The runs come from the slices of lists; no value leaves the server, except those
-- of runs that are found.

-- The text inside a JSON string: as our codec writes it, and in ASCII alone, as other libraries do. Once, if both are the
-- same. searching.py makes the same ones.
create or replace function json_forms(sought text) returns text[] language plpgsql immutable as $$
declare
    form text := substr(to_json(sought)::text, 2, length(to_json(sought)::text) - 2);
begin
    if octet_length(form) = length(form) and position(chr(127) in form) = 0 then
        return array[form];
    end if;
    return array[form, (
        select string_agg(
            case when ascii(s.letter) < 127 then s.letter
                when ascii(s.letter) < 65536 then '\u' || lpad(to_hex(ascii(s.letter)), 4, '0')
                else '\u' || to_hex(55296 + (ascii(s.letter) - 65536) / 1024)
                    || '\u' || to_hex(56320 + (ascii(s.letter) - 65536) % 1024) end,
            '' order by s.place
        ) from regexp_split_to_table(form, '') with ordinality as s (letter, place)
    )];
end $$;

-- The message of an error. Null: it has none, it is no text, or it has escapes that Postgres cannot read.
create or replace function error_message(error json) returns text language plpgsql immutable as $$
begin
    if json_typeof(error) = 'object' and json_typeof(error -> 'message') = 'string' then
        return error ->> 'message';
    end if;
    return null;
exception when others then
    return null;
end $$;

-- One part of a search: {"runs": a page, "after": the id after which the next part begins, or null at the end,
-- "looked_at": how many runs of the filter were looked at}. It looks at no more than `most` runs and `bytes` of their
-- values, but at least at one run. Each run is read by itself, so that at most one is read in vain.
create or replace function search(
    sought text, filter json, lim integer, after uuid, most integer default 2000, bytes bigint default 33554432,
    budget bigint default 8388608
) returns json
language plpgsql stable set search_path from current set cursor_tuple_fraction = 1 set jit = off
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    slice record;
    forms text[];
    run uuid;
    r record;
    looked_at integer := 0;
    last_run uuid;
    hits uuid[] := '{}';
    places integer[] := '{}';
    runs json;
    shown integer;
begin
    if sought is null or length(sought) not between 1 and 200 then
        perform refuse('UsageError', 'text ' || in_a_line(sought) || ': give 1 to 200 characters');
    end if;
    forms := json_forms(sought);
    most := greatest(most, 1);
    slice := slice_ids(filter, most, after);
    foreach run in array slice.ids[:most] loop
        select w.payload::text as payload, coalesce(w.result::text, '') as result, coalesce(w.labels::text, '') as labels,
            w.error, coalesce(w.last_error, '') as last_error, coalesce(shown_key(w.tenant, w.idempotency_key), '') as key
        into r from workflow_run as w where w.id = run;
        bytes := bytes - octet_length(r.payload) - octet_length(r.result) - octet_length(r.labels)
            - coalesce(octet_length(r.error::text), 0);
        exit when looked_at > 0 and bytes < 0;
        looked_at := looked_at + 1;
        last_run := run;
        if strpos(r.payload, forms[1]) > 0 or strpos(r.result, forms[1]) > 0 or strpos(r.labels, forms[1]) > 0
            or strpos(r.payload, forms[2]) > 0 or strpos(r.result, forms[2]) > 0 or strpos(r.labels, forms[2]) > 0
            or strpos(r.key, sought) > 0 or strpos(r.last_error, sought) > 0
            or r.error is not null and strpos(error_message(r.error), sought) > 0 then
            hits := hits || run;
            places := places || looked_at;
            exit when cardinality(hits) >= lim;
        end if;
    end loop;
    runs := listed_runs(hits, coalesce((filter ->> 'values')::boolean, true), budget);
    shown := json_array_length(runs);
    if shown < cardinality(hits) then  -- the others are too large for this answer
        looked_at := places[shown];
        last_run := hits[shown];
    end if;
    return json_build_object(
        'runs', runs,
        'after', case when looked_at < cardinality(slice.ids) then last_run else slice.next_after end,
        'looked_at', looked_at
    );
end $$;
