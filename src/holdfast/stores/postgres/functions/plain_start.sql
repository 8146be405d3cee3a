-- Plain INSERT, in any language: the triggers make it what the verbs make. Ours write `rev` themselves and pass by; a row of
-- plain SQL comes with rev 0. Before it: fill and check, no more, for a row that conflicts comes here too. After it: what a
-- start writes beside the row. They run in the session of a stranger, with his rights: hence their own search_path.

create or replace function plain_start() returns trigger language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    ours text;
    d workflow_definition;
begin
    select string_agg(c.key, ', ' order by c.key) into ours from json_each(plain_words(new)) as c
    where c.key <> all(producers_columns()) and c.value::text not in ('null', '0', '""')
        and (c.key, c.value::text) not in (('status', '"pending"'), ('kind', '"code"'), ('max_crashes', '4'));
    if ours is not null or new.result is not null or new.error is not null or new.progress is not null then
        perform refuse('UsageError', 'a run is started as pending, and the database keeps the rest: leave out '
                       || coalesce(ours, 'result, error and progress'));
    end if;
    if coalesce(new.type, '') !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\.v[1-9][0-9]*$' then
        perform refuse('UsageError', in_a_line(new.type) || ' is no workflow type: write '
                       || 'domain.action.vN with letters, digits, _ and -, for example ''shop.order.v1''');
    end if;
    select * into d from workflow_definition as w where w.type = new.type;
    new.id := coalesce(new.id, new_id());
    new.tenant := checked_name('tenant', coalesce(new.tenant, 'default'));
    new.kind := coalesce(d.kind, 'code');
    new.payload := checked_value('payload', coalesce(new.payload, 'null'));
    new.priority := checked_priority(coalesce(new.priority, 100));
    new.run_at := checked_time(coalesce(new.run_at, now));
    new.idempotency_key := stored_key(new.tenant, checked_name('idempotency_key', new.idempotency_key));
    new.max_attempts := coalesce(new.max_attempts, nullif(d.max_attempts, 0), 3);
    if new.max_attempts < 1 then
        perform refuse('UsageError', 'max_attempts is ' || new.max_attempts || ': at least 1, the first execution counts');
    end if;
    new.limit_key := checked_name('limit_key', new.limit_key);
    new.labels := checked_labels(new.labels);
    new.budget := coalesce(new.budget, d.budget);
    if new.budget < 1 or new.ttl_seconds < 0 or new.timeout_seconds < 0 then
        perform refuse('UsageError', 'budget, ttl_seconds and timeout_seconds are not negative, and a budget is not 0');
    end if;
    new.timeout_seconds := bounded(coalesce(new.timeout_seconds, d.timeout_seconds));
    new.timeout_at := now + span(new.timeout_seconds);
    new.ttl_seconds := bounded(new.ttl_seconds);
    new.inbox_mark := inbox_mark();
    new.fence := first_fence();
    new.digest := 'sql';
    new.created_at := now;
    new.updated_at := now;
    if new.parent_id is not null and not exists (
        select 1 from workflow_run as p where p.id = new.parent_id and p.tenant = new.tenant and p.deleted_at is null
    ) then
        perform refuse_unknown(new.parent_id);
    end if;
    return new;
end $$;

-- What a start may say. The two times are ours, but nobody is blamed for writing them.
create or replace function producers_columns() returns text[] language sql immutable as $$
    select array['id', 'tenant', 'type', 'payload', 'priority', 'run_at', 'idempotency_key', 'max_attempts', 'limit_key',
                 'labels', 'budget', 'timeout_seconds', 'ttl_seconds', 'parent_id', 'trace', 'created_at', 'updated_at']
$$;

create or replace function plain_started() returns trigger language plpgsql set search_path from current as $$
declare
    d workflow_definition;
begin
    select * into d from workflow_definition as w where w.type = new.type;
    if d.kind = 'plan' and coalesce(d.steps -> 0 ->> 'kind', 'task') <> 'task' then
        perform lock_topics(plan_topics(json_build_array(json_build_object('type', new.type, 'tenant', new.tenant))));
    end if;
    perform begin_run(new, d, new.created_at);
    perform hint();
    return null;
end $$;

-- A row of the trail that a worker tells, of a run that is there. Who writes a run's trail holds its row, and only then
-- takes a number: else one who follows the trail by its numbers would miss it.
create or replace function plain_tell() returns trigger language plpgsql set search_path from current as $$
begin
    perform 1 from workflow_run as r
    where r.id = new.workflow_id and r.deleted_at is distinct from '-infinity' for no key update;
    if not found then
        perform refuse_unknown(new.workflow_id);
    end if;
    new.event_type := checked_name('event_type', coalesce(new.event_type, ''));
    new.data := checked_value('data', coalesce(new.data, '{}'));
    if json_typeof(new.data) <> 'object' then
        perform refuse('UsageError', 'data of a trail row is an object, as in ''{"done": 7}'', not '
                       || left(new.data::text, 40));
    end if;
    new.id := nextval('workflow_event_id_seq');
    new.created_at := clock();
    return new;
end $$;

-- The limits of the engine on what people hand in, with its words.

-- The beginning of a text, as a message shows it.
create or replace function in_a_line(said text) returns text language sql immutable as $$
    select '''' || regexp_replace(left(coalesce(said, ''), 40), '[[:cntrl:]]+', ' ', 'g') || ''''
$$;

create or replace function checked_name(what text, name text) returns text language plpgsql immutable as $$
begin
    if name = '' or length(name) > 255 or strpos(name, U&'\001F') > 0 then
        perform refuse('UsageError', what || ' ' || in_a_line(name)
                       || ': 1 to 255 characters of text, without NUL or U+001F');
    end if;
    return name;
end $$;

create or replace function checked_priority(priority integer) returns integer language plpgsql immutable as $$
begin
    if priority not between 0 and 999 then
        perform refuse('UsageError', 'priority ' || priority || ': a whole number from 0 to 999, lower goes first');
    end if;
    return priority;
end $$;

-- A time that every reader can show.
create or replace function checked_time(at timestamptz) returns timestamptz language plpgsql immutable as $$
begin
    if at not between '1970-01-01 00:00:00+00' and '9999-01-01 00:00:00+00' then
        perform refuse('UsageError', 'run_at ' || at || ': a time from 1970 to 9998');
    end if;
    return at;
end $$;

-- json takes \u0000 and half characters at their word, and no reader could open them; jsonb does not.
create or replace function checked_value(what text, value json) returns json language plpgsql immutable as $$
begin
    perform value::jsonb;
    return value;
exception when data_exception or program_limit_exceeded then
    perform refuse('UsageError', what || ' cannot be read back: ' || sqlerrm);
end $$;

create or replace function checked_labels(labels json) returns json language plpgsql immutable as $$
declare
    is_object boolean := json_typeof(labels) = 'object';
begin
    if labels is null then
        return null;
    end if;
    perform checked_value('labels', labels);
    if not is_object or exists (
        select 1 from json_each(case when is_object then labels else '{}' end) as l where json_typeof(l.value) <> 'string'
    ) then
        perform refuse('UsageError', 'labels ' || left(labels::text, 60)
                       || ': an object of text, as in ''{"team": "billing"}''');
    end if;
    return labels;
end $$;
