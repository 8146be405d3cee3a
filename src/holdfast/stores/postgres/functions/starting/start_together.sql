-- start_together: starts of several callers in one call.

-- Start several runs, perhaps of several callers. None waits long for a key or an id in another open transaction: that
-- item is answered `busy`, nothing of it is written, and it is to be sent alone. Only a call whose runs all count under
-- one API key waits for the others of that key: it delays nobody else.
create or replace function start_together(runs json) returns json language plpgsql
set search_path from current set lock_timeout = '100ms' as $$
declare
    own text := one_limited_key(runs);
begin
    if own is not null then
        begin
            perform set_config('lock_timeout', '5s', true);
            perform lock_api_keys(array[own]);
            perform set_config('lock_timeout', '100ms', true);
        exception when lock_not_available then
            return start_each(runs);
        end;
    end if;
    begin
        return start(runs);
    exception when lock_not_available then
        return start_each(runs);
    end;
end $$;

-- The API key under which all of these runs count, if none of them is a plan: that may have to lock topics first.
create or replace function one_limited_key(runs json) returns text language plpgsql stable as $$
begin
    return (
        select min(n.api_key)
        from json_to_recordset(runs) as n (type text, api_key text, open_runs_max integer)
        left join workflow_definition as d on d.type = n.type
        having bool_and(d.kind is distinct from 'plan') and count(distinct n.api_key) = 1 and count(*) = count(n.api_key) and count(*) = count(n.open_runs_max)
    );
end $$;

-- Without those that are `busy` because another session has locked their API key. The others are started together if
-- nothing else stands in their way, or one by one.
create or replace function start_each(runs json) returns json language plpgsql set lock_timeout = '20ms' as $$
declare
    locked text[] := locked_api_keys(runs);
    answers json[];
    rest json;
    places integer[];
    one record;
begin
    select json_agg(i.item order by i.place), array_agg(i.place order by i.place) into rest, places
    from json_array_elements(runs) with ordinality as i (item, place)
    where i.item ->> 'open_runs_max' is null or (i.item ->> 'api_key' = any(locked)) is not true;
    for one in
        select i.item, i.place::integer from json_array_elements(runs) with ordinality as i (item, place)
        where i.place <> all(coalesce(places, '{}'))
    loop
        answers[one.place] := json_build_object('error', 'busy', 'id', one.item ->> 'id');
    end loop;
    if cardinality(places) between 1 and json_array_length(runs) - 1 then
        begin
            for one in
                select a.answer, places[a.place] as place
                from json_array_elements(start(rest)) with ordinality as a (answer, place)
            loop
                answers[one.place] := one.answer;
            end loop;
            return array_to_json(answers);
        exception when lock_not_available then
            null;
        end;
    end if;
    for one in
        select i.item, places[i.place] as place from json_array_elements(rest) with ordinality as i (item, place)
        order by i.item ->> 'key', i.place
    loop
        begin
            answers[one.place] := start(json_build_array(one.item)) -> 0;
        exception when lock_not_available then
            answers[one.place] := json_build_object('error', 'busy', 'id', one.item ->> 'id');
        end;
    end loop;
    return array_to_json(answers);
end $$;

-- Lock the API keys under which these runs count, without waiting. Returns those that another session has locked.
create or replace function locked_api_keys(runs json) returns text[] language plpgsql as $$
begin
    return array(
        select k.api_key from (
            select distinct n.api_key from json_to_recordset(runs) as n (api_key text, open_runs_max integer)
            where n.api_key is not null and n.open_runs_max is not null
        ) as k where not pg_try_advisory_xact_lock(1752132457, (hashtextextended(k.api_key, 0) & 1023)::integer)
    );
end $$;
