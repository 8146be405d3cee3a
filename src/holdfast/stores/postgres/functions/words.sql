-- What all verbs share. Every verb of the store is one function of the same name, one round trip; records travel as
-- JSON with the names of records/, instants in microseconds, values as JSON text inside a string, so that what was
-- written is what is read. A field may be added to such a record in any version; an argument may not.
--
-- A verb (called from outside) says `set search_path from current`, takes `clock()` once, and locks in one order: topic
-- and line buckets ascending (lock_topics, lock_lines), then run rows by id ascending (lock_runs), all before its first
-- write. Whoever writes a run, its steps or its receipts holds the lock of its row; each of its statements then sees
-- what is there. Parts of verbs are named the same in every store.
-- Every update of workflow_run says `rev = rev + 1`.
--
-- What has a subquery in it is written in PL/pgSQL, however short: SQL that cannot be taken into its caller is planned anew
-- at each call, which costs more than most of what is done here. One expression is better as SQL.

-- Microseconds since 1970, and back.
-- A time without end, which somebody wrote past all checks, is the last or first that readers know.
create or replace function us(at timestamptz) returns bigint language sql stable parallel safe as
    $$select case when isfinite(at) then (extract(epoch from at) * 1000000)::bigint
        when at > 'epoch' then 253402300799999999 when at < 'epoch' then -62135596800000000 end$$;

-- The same, quicker, and exact for times of this century and the next.
create or replace function us_near(at timestamptz) returns bigint language sql stable parallel safe as
    $$select case when isfinite(at) then (date_part('epoch', at) * 1000000)::bigint else us(at) end$$;

-- Before the year 1 and after 9999 there is nothing that every reader can show: then the nearest that there is.
create or replace function moment(us bigint) returns timestamptz language sql stable parallel safe as
    $$select timestamptz '1970-01-01 00:00:00+00' + case when us > 253402300799000000 then 253402300799000000
        when us < -62135596800000000 then -62135596800000000 else us end * interval '1 microsecond'$$;

-- An instant as JSON has it, whatever the session's time zone is. One that somebody wrote past all checks must not break
-- the list that it stands in.
create or replace function shown_at(at timestamptz) returns text language sql stable parallel safe as
    $$select case when at >= '10000-01-01 00:00:00+00' then '9999-12-31T23:59:59.999999Z'
        when at < '0001-01-01 00:00:00+00' then '0001-01-01T00:00:00.000000Z'
        else to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') end$$;

-- A duration that can be added to any present instant: a thousand years are as good as for ever.
create or replace function span(seconds double precision) returns interval language sql immutable parallel safe as
    'select make_interval(secs => case when seconds > 31557600000 then 31557600000 when seconds < -31557600000
        then -31557600000 else seconds end)';

-- When a new run times out: counted from when it is due, and no later than a reader can say.
create or replace function times_out_at(run_at timestamptz, now timestamptz, seconds double precision)
returns timestamptz language sql immutable as $$
    select case when seconds is not null then
        least(greatest(run_at, now) + span(seconds), timestamptz '9999-12-31 23:59:59.999999+00') end
$$;

-- One row of the trail; its id, for when it must learn where it led.
create or replace function note(run uuid, what text, data text default '{}', at timestamptz default clock())
returns bigint language plpgsql volatile as $$
declare
    entry bigint;
begin
    insert into workflow_event (workflow_id, event_type, data, created_at, told)
    values (run, what, note.data::json, at, false) returning id into entry;
    return entry;
end $$;

-- A row of the trail learns where it led.
create or replace function lead_to(entry bigint, status text) returns void language plpgsql volatile
set enable_sort = off as $$
begin
    update workflow_event as e
    set data = (left(e.data::text, -1) || case when e.data::text = '{}' then '' else ',' end
                || '"status":' || to_json(status)::text || '}')::json
    where e.ctid = (select t.ctid from workflow_event as t where t.id >= entry and t.id <= entry order by t.id limit 1);
end $$;

-- A refusal: nothing of this call is written. `data` is what the error of that name is made from.
create or replace function refuse(name text, message text, data json default '{}') returns void language plpgsql as $$
begin
    raise exception using errcode = 'HF' || case name
        when 'UnknownRun' then '001' when 'IllegalMove' then '002' when 'Conflict' then '003'
        when 'UnknownStep' then '004' when 'UnknownMessage' then '005' when 'UnknownSchedule' then '006'
        when 'UsageError' then '007' when 'SchemaMismatch' then '008' else '000' end,
        message = one_line(message), detail = json_build_object('error', name, 'data', data)::text;
end $$;

-- A message as a terminal or a log may show it: names in it are other people's text.
create or replace function one_line(message text) returns text language sql immutable as
    $$select regexp_replace(message, '[\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]', '?', 'g')$$;

create or replace function refuse_unknown(run uuid) returns void language sql as $$
    select refuse('UnknownRun', 'no run ' || run, json_build_object('run', run))
$$;

create or replace function refuse_move(run uuid, move text, status text, hint text default '') returns void
language sql as $$
    select refuse('IllegalMove', 'cannot ' || move || ' run ' || run || ': it is ' || status,
                  json_build_object('run', run, 'move', move, 'status', status, 'hint', hint))
$$;

-- What a lock waits for is seen only by a statement that begins after it: no other isolation shows it.
create or replace function refuse_old_snapshot() returns void language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse('UsageError', 'this cannot be done in a transaction that is '
                       || current_setting('transaction_isolation') || ': make it read committed');
    end if;
end $$;

-- Whoever looks for events, or hands them over, has the topic for himself. A statement of its own, before any look:
-- what a lock waits for is seen only by the next statement. Few buckets, for each lock takes shared memory.
create or replace function lock_buckets(class integer, names text[]) returns void language plpgsql as $$
declare
    bucket integer;
begin
    if cardinality(names) > 0 then
        perform refuse_old_snapshot();
    end if;
    for bucket in
        select distinct (hashtextextended(name, 0) & 1023)::integer as b from unnest(names) as name
        where name is not null order by b
    loop
        perform pg_advisory_xact_lock(class, bucket);
    end loop;
end $$;

-- Each name: tenant, U+001F, topic.
create or replace function lock_topics(topics text[]) returns void language sql as
    'select lock_buckets(1752132452, topics)';

-- Each name: tenant, U+001F, sink, U+001F, key.
create or replace function lock_lines(lines text[]) returns void language sql as
    'select lock_buckets(1752132453, lines)';

-- Keys of runs that several items of one commit start: two commits would wait for each other's.
create or replace function lock_keys(keys text[]) returns void language plpgsql as $$
begin
    if cardinality(array_remove(keys, null)) > 1 then
        perform lock_buckets(1752132456, keys);
    end if;
end $$;

-- Rows in one order, whoever asks.
create or replace function lock_runs(ids uuid[]) returns void language plpgsql as $$
begin
    perform refuse_old_snapshot();
    perform 1 from workflow_run where id = any(ids) order by id for no key update;
end $$;

-- There may be news: a hint for whoever listens, at most once a commit.
create or replace function hint() returns void language plpgsql as $$
begin
    -- Somebody listens and does not read: a full queue would fail the commit, and hints are never needed.
    if pg_notification_queue_usage() < 0.9 then
        perform pg_notify('holdfast_' || current_schema(), '');
    end if;
end $$;

-- Where the fence of a run begins that is started now: each growth of a fence is a row of the trail, so that none has
-- passed the highest number the trail ever gave, to rows that are purged by now too.
create or replace function first_fence() returns bigint language plpgsql volatile as $$
begin
    return (select case when is_called then last_value else 0 end from workflow_event_id_seq);
end $$;

-- Events up to here came before.
create or replace function inbox_mark() returns bigint language plpgsql volatile as $$
begin
    return (select case when is_called then last_value else 0 end from workflow_inbox_seq_seq);
end $$;

create or replace function stored_key(tenant text, key text) returns text language sql immutable as
    $$select case when tenant = 'default' then key else tenant || U&'\001F' || key end$$;

create or replace function shown_key(tenant text, key text) returns text language sql immutable as
    $$select case when tenant = 'default' then key else split_part(key, U&'\001F', 2) end$$;

-- Records, as records/ has them.

-- Whether a value has more than so many bytes. One that is stored in more is not read to be measured.
create or replace function is_large(value json, largest bigint) returns boolean language sql immutable as
    'select case when value is null or largest is null then false when pg_column_size(value) > largest + 4 then true
        else octet_length(value::text) > largest end';

-- Values of more than so many bytes are left out. One expression, which is taken into its caller: a row that is handed on as
-- a whole is put together first, with all its values.
create or replace function step_record(s workflow_step, largest bigint default null) returns json language sql stable as $$
    select json_build_object(
        'seq', s.seq, 'key', s.key, 'kind', s.kind, 'status', s.status, 'attempts', s.attempts,
        'output', case when not is_large(s.output, largest) then s.output::text end, 'error', s.error::text, 'cost', s.cost, 'topic', s.topic, 'due_at', us(s.due_at),
        'fence', s.fence, 'started_at', us(s.started_at), 'finished_at', us(s.finished_at),
        'max_attempts', s.max_attempts, 'timeout_seconds', s.timeout_seconds, 'ask', case when not is_large(s.ask, largest) then s.ask::text end, 'digest', s.digest,
        'child', s.child_id, 'wake', case when not is_large(s.wake, largest) then s.wake::text end, 'waits', s.waits,
        'left_out', is_large(s.output, largest) or is_large(s.ask, largest) or is_large(s.wake, largest)
    )
$$;

-- A task of a plan as it begins: nothing of it has changed, and what is not told is not set.
create or replace function is_fresh_task(s workflow_step) returns boolean language sql immutable as $$
    select s.kind = 'task' and s.status = 'pending' and s.finished_at is null and s.started_at is null and s.attempts = 0
        and s.fence = 0 and s.cost = 0 and s.waits = 0 and s.output is null and s.error is null and s.wake is null
        and s.topic is null and s.due_at is null and s.timeout_seconds is null and s.ask is null and s.digest is null
        and s.child_id is null
$$;

-- As JSON text. Most rows of a plan that is claimed have not begun: they are told in a few words, put together by hand, for
-- json_build_object looks up the type of each value for each row.
create or replace function step_records(run uuid) returns text language plpgsql stable as $$
begin
    return (
        select '[' || coalesce(string_agg(
            case when is_fresh_task(s) then '{"seq":' || s.seq || ',"key":' || to_json(s.key)::text
                || ',"kind":"task","status":"pending","max_attempts":' || coalesce(s.max_attempts::text, 'null') || '}'
            else step_record(s)::text end,
            ',' order by s.seq
        ), '') || ']'
        from workflow_step as s where s.run_id = run
    );
end $$;

-- What the run waits for, first due first. By the index of open steps: a run may have ten thousand that are done.
create or replace function open_waits(run uuid) returns setof workflow_step language sql stable as $$
    select * from workflow_step
    where run_id = run and status = 'waiting' and finished_at is null
    order by due_at nulls last, seq
$$;

-- Waits that were settled behind the holder's back, oldest first. A child that was only started has not waited.
create or replace function settled_since(run uuid, known integer) returns json language plpgsql stable
set enable_sort = off as $$
begin
    return (
        select coalesce(json_agg(step_record(s) order by s.seq), '[]') from (
            select * from workflow_step as w where w.run_id = run and w.seq > known order by w.seq offset 0
        ) as s
        where s.kind in ('sleep', 'event', 'approval', 'child') and s.status in ('succeeded', 'failed')
            and (s.kind <> 'child' or s.waits > 0)
    );
end $$;

create or replace function has_settled(run uuid, known integer) returns boolean language plpgsql stable
set enable_sort = off as $$
begin
    return (
        select 1 from workflow_step as s
        where s.run_id = run and s.seq > known and s.kind in ('sleep', 'event', 'approval', 'child')
            and s.status in ('succeeded', 'failed') and (s.kind <> 'child' or s.waits > 0)
        order by s.seq limit 1
    ) is not null;
end $$;

-- Whether they are too large for an answer that tells of many runs: more than 64 KiB, counted as by claim and load. Values
-- that are stored in more are not read just to be measured.
create or replace function has_large_news(run uuid, known integer) returns boolean language plpgsql stable
set enable_sort = off as $$
declare
    s workflow_step;
    stored bigint := 0;
    size bigint := 0;
begin
    for s in
        select * from workflow_step as w where w.run_id = run and w.seq > known order by w.seq
    loop
        continue when s.kind not in ('sleep', 'event', 'approval', 'child') or s.status not in ('succeeded', 'failed')
            or (s.kind = 'child' and s.waits = 0);
        stored := stored + coalesce(pg_column_size(s.output), 0) + coalesce(pg_column_size(s.error), 0)
            + coalesce(pg_column_size(s.ask), 0) + coalesce(pg_column_size(s.wake), 0);
        if stored <= 65536 then
            size := size + step_bytes(s);
        end if;
        if stored > 65536 or size > 65536 then
            return true;
        end if;
    end loop;
    return false;
end $$;

-- The highest number that a step was ever given, one that is forgotten by now too.
create or replace function highest_seq(run uuid, step_mark integer) returns integer language plpgsql stable
set enable_sort = off as $$
begin
    return greatest(step_mark, (
        select s.seq from workflow_step as s where s.run_id = run order by s.seq desc limit 1
    ));
end $$;

-- Where a run is: of a plan number and name of the first step that has not succeeded, or without a number the last one;
-- of code the last that has its outcome, without a number. Not plain SQL, which would be planned anew for each run of a
-- list.
create or replace function current_place(run uuid, kind text, out at_seq integer, out at_key text) language plpgsql stable as $$
begin
    if kind = 'plan' then
        select s.seq, s.key into at_seq, at_key from workflow_step as s
        where s.run_id = run and s.status <> 'succeeded' order by s.seq limit 1;
        if at_seq is null then
            at_key := (select s.key from workflow_step as s where s.run_id = run order by s.seq desc limit 1);
        end if;
    else
        at_key := (
            select s.key from workflow_step as s
            where s.run_id = run and s.status in ('succeeded', 'failed') order by s.seq desc limit 1
        );
    end if;
end $$;

-- The run as people see it, and whether it owes others something that is to be carried out. A plain checkpoint leaves the run row alone: its trail knows when it was.
create or replace function run_record(r workflow_run) returns json language plpgsql stable as $$
declare
    place record := current_place(r.id, r.kind);
    present uuid := r.present;
    first_owes integer := r.owes;
begin
    if r.chain is not null then
        select w.present, w.owes into present, first_owes from workflow_run as w where w.id = r.chain;
    end if;
    return json_build_object(
        'id', r.id, 'tenant', r.tenant, 'type', r.type, 'kind', r.kind, 'status', r.status,
        'params_json', r.payload::text, 'result_json', r.result::text, 'error_json', r.error::text,
        'last_error', r.last_error, 'priority', r.priority, 'run_at', shown_at(r.run_at),
        'key', shown_key(r.tenant, r.idempotency_key), 'attempt', r.attempt,
        'max_attempts', coalesce(r.tried_of, r.max_attempts),
        'crashes', r.crashes, 'fence', r.fence, 'leased_by', r.leased_by, 'lease_until', shown_at(r.lease_until),
        'waiting_on', (
            select coalesce(json_agg(step_record(w) order by w.due_at nulls last, w.seq), '[]')
            from open_waits(r.id) as w
        ),
        'pause_asked_by', r.pause_asked_by, 'cursor', place.at_key, 'current_step_seq', place.at_seq,
        'current_step_name', case when place.at_seq is not null then place.at_key end,
        'chain', coalesce(r.chain, r.id), 'present', coalesce(present, r.id), 'parent', r.parent_id,
        'parent_step', r.parent_step, 'limit_key', r.limit_key, 'labels_json', r.labels::text, 'cost_units', r.cost,
        'budget_units', r.budget, 'progress_json', r.progress::text, 'timeout_at', shown_at(r.timeout_at),
        'timeout_seconds', r.timeout_seconds, 'ttl_seconds', r.ttl_seconds, 'expires_at', shown_at(r.expires_at),
        'created_at', shown_at(r.created_at),
        'updated_at', shown_at(greatest(r.updated_at, (
            select created_at from workflow_event where workflow_id = r.id order by id desc limit 1
        ))),
        'started_at', shown_at(r.started_at), 'finished_at', shown_at(r.finished_at),
        'deleted_at', shown_at(r.deleted_at), 'owes', r.owes > 0, 'chain_owes', first_owes & 16 > 0
    );
end $$;
