-- The basics of all verbs: instants, trail rows, refusals, locks, and records as JSON. Every verb of the store is one
-- function of the same name and one round trip. Records travel as JSON with the field names of records/, instants in
-- microseconds, values as JSON text inside a string, so that values are read exactly as they were written. A version
-- may add a field to such a record, but not an argument to a function.
--
-- A verb (called from outside) says `set search_path from current`, takes `clock()` once, and takes its locks
-- in one order: buckets of topics (lock_topics), of API keys (lock_api_keys), of keys of new runs (lock_keys), of outbox
-- queues (lock_lines), each ascending; then run rows by id (lock_runs). It takes them before its first write, except rows that are taken with
-- `skip locked` (commit, claim, chores): that never waits. Whoever writes a run, its steps or its receipts holds the lock of the run's row; each
-- statement then sees the current state. Parts of verbs have the same names in every store. Every update of
-- workflow_run says `rev = rev + 1`.
--
-- A function with a subquery is written in PL/pgSQL, however short: an SQL function that cannot be inlined is planned
-- again at each call, which costs more than most of the work here. A function of one expression is better in SQL.

-- An instant as microseconds since 1970. An infinite time, which user SQL may have written past all checks, becomes the
-- last or first time that readers can hold.
create or replace function us(at timestamptz) returns bigint language sql stable parallel safe as
    $$select case when isfinite(at) then (extract(epoch from at) * 1000000)::bigint
        when at > 'epoch' then 253402300799999999 when at < 'epoch' then -62135596800000000 end$$;

-- The same, faster, and exact for times of this century and the next.
create or replace function us_near(at timestamptz) returns bigint language sql stable parallel safe as
    $$select case when isfinite(at) then (date_part('epoch', at) * 1000000)::bigint else us(at) end$$;

-- Microseconds as an instant. Not every reader can show times before the year 1 and after 9999; they become the nearest
-- one that can be shown.
create or replace function moment(us bigint) returns timestamptz language sql stable parallel safe as
    $$select timestamptz '1970-01-01 00:00:00+00' + case when us > 253402300799000000 then 253402300799000000
        when us < -62135596800000000 then -62135596800000000 else us end * interval '1 microsecond'$$;

-- An instant as JSON text, in any time zone of the session. A time that was written past all checks must not break the
-- list that contains it.
create or replace function shown_at(at timestamptz) returns text language sql stable parallel safe as
    $$select case when at >= '10000-01-01 00:00:00+00' then '9999-12-31T23:59:59.999999Z'
        when at < '0001-01-01 00:00:00+00' then '0001-01-01T00:00:00.000000Z'
        else to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') end$$;

-- A duration that can be added to any present instant: at most a thousand years.
create or replace function span(seconds double precision) returns interval language sql immutable parallel safe as
    'select make_interval(secs => case when seconds > 31557600000 then 31557600000 when seconds < -31557600000
        then -31557600000 else seconds end)';

-- The instant at which a new run times out: counted from the time when it is due, and no later than a reader can show.
create or replace function times_out_at(run_at timestamptz, now timestamptz, seconds double precision)
returns timestamptz language sql immutable as $$
    select case when seconds is not null then
        least(greatest(run_at, now) + span(seconds), timestamptz '9999-12-31 23:59:59.999999+00') end
$$;

-- Write one row of the trail. Returns its id, so that `lead_to` can add a status to it.
create or replace function note(run uuid, what text, data text default '{}', at timestamptz default clock())
returns bigint language plpgsql volatile as $$
declare
    entry bigint;
begin
    insert into workflow_event (workflow_id, event_type, data, created_at, told)
    values (run, what, note.data::json, at, false) returning id into entry;
    return entry;
end $$;

-- Add the status to a row of the trail.
create or replace function lead_to(entry bigint, status text) returns void language plpgsql volatile
set enable_sort = off as $$
begin
    update workflow_event as e
    set data = (left(e.data::text, -1) || case when e.data::text = '{}' then '' else ',' end
                || '"status":' || to_json(status)::text || '}')::json
    where e.ctid = (select t.ctid from workflow_event as t where t.id >= entry and t.id <= entry order by t.id limit 1);
end $$;

-- Refuse the call: nothing of it is written. `data` holds the fields of the error class `name`.
create or replace function refuse(name text, message text, data json default '{}') returns void language plpgsql as $$
begin
    raise exception using errcode = 'HF' || case name
        when 'UnknownRun' then '001' when 'IllegalMove' then '002' when 'Conflict' then '003'
        when 'UnknownStep' then '004' when 'UnknownMessage' then '005' when 'UnknownSchedule' then '006'
        when 'UsageError' then '007' when 'SchemaMismatch' then '008' when 'ChangedSince' then '009'
        when 'UnknownApiKey' then '010' else '000' end,
        message = one_line(message), detail = json_build_object('error', name, 'data', data)::text;
end $$;

-- A message on one line, safe for a terminal or a log: names in it are text of other people.
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

-- After waiting for a lock, only a new statement sees what the other session has committed. At other isolation levels
-- no statement sees it.
create or replace function refuse_old_snapshot() returns void language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse('UsageError', 'this cannot be done in a transaction that is '
                       || current_setting('transaction_isolation') || ': make it read committed');
    end if;
end $$;

-- Lock buckets, so that only one session looks for events of a topic or delivers them. Take the locks in a statement of
-- their own, before any read: only the next statement sees what a lock has waited for. There are few buckets, because
-- each lock takes shared memory.
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

-- Keys of runs that several items of one commit start. Without these locks two commits could wait for each other.
create or replace function lock_keys(keys text[]) returns void language plpgsql as $$
begin
    if cardinality(array_remove(keys, null)) > 1 then
        perform lock_buckets(1752132456, keys);
    end if;
end $$;

-- Lock run rows in one order, whoever asks.
create or replace function lock_runs(ids uuid[]) returns void language plpgsql as $$
begin
    perform refuse_old_snapshot();
    perform 1 from workflow_run where id = any(ids) order by id for no key update;
end $$;

-- Wake listeners up, at most once a commit.
create or replace function hint() returns void language plpgsql as $$
begin
    -- If a listener stops reading, the queue fills, and a full queue would fail this commit. No wake-up is sent then:
    -- wake-ups are never required.
    if pg_notification_queue_usage() < 0.9 then
        perform pg_notify('holdfast_' || current_schema(), '');
    end if;
end $$;

-- The same after a move of a leased run by somebody other than its holder: workers then look at their leases, too. A
-- commit that calls both wakes listeners twice.
create or replace function call_holders() returns void language plpgsql as $$
begin
    if pg_notification_queue_usage() < 0.9 then
        perform pg_notify('holdfast_' || current_schema(), 'leases');
    end if;
end $$;

-- Wake listeners up after a move of a run that had this status.
create or replace function hint_after(status text) returns void language plpgsql as $$
begin
    if hint_after.status = 'leased' then
        perform call_holders();
    else
        perform hint();
    end if;
end $$;

-- The first fence of a run that is started now: the highest number that the trail ever gave, also to rows that are
-- purged. Each growth of a fence writes a row of the trail, so no older fence is higher.
create or replace function first_fence() returns bigint language plpgsql volatile as $$
begin
    return (select case when is_called then last_value else 0 end from workflow_event_id_seq);
end $$;

-- The number of the newest event so far. Later events have higher numbers.
create or replace function inbox_mark() returns bigint language plpgsql volatile as $$
begin
    return (select case when is_called then last_value else 0 end from workflow_inbox_seq_seq);
end $$;

-- An idempotency key as it is stored: with its tenant in front, except for the default tenant. So one unique index serves
-- all tenants.
create or replace function stored_key(tenant text, key text) returns text language sql immutable as
    $$select case when tenant = 'default' then key else tenant || U&'\001F' || key end$$;

create or replace function shown_key(tenant text, key text) returns text language sql immutable as
    $$select case when tenant = 'default' then key else split_part(key, U&'\001F', 2) end$$;

-- Records, with the fields of records/.

-- True when a value has more than `largest` bytes. A value whose stored size is already larger is not
-- read.
create or replace function is_large(value json, largest bigint) returns boolean language sql immutable as
    'select case when value is null or largest is null then false when pg_column_size(value) > largest + 4 then true
        else octet_length(value::text) > largest end';

-- A step as JSON. Values of more than `largest` bytes are left out. The body is one expression, which is inlined: a row
-- that is passed as an argument would be built first, with all its values.
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

-- True for a task of a plan that has not begun: nothing of it has changed, and fields that are not sent are not set.
create or replace function is_fresh_task(s workflow_step) returns boolean language sql immutable as $$
    select s.kind = 'task' and s.status = 'pending' and s.finished_at is null and s.started_at is null and s.attempts = 0
        and s.fence = 0 and s.cost = 0 and s.waits = 0 and s.output is null and s.error is null and s.wake is null
        and s.topic is null and s.due_at is null and s.timeout_seconds is null and s.ask is null and s.digest is null
        and s.child_id is null
$$;

-- The steps of a run as JSON text. Most rows of a plan that is claimed have not begun: they are short, and concatenated
-- by hand, because json_build_object looks up the type of each value for each row.
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

-- The open waits of the run, first due first. They are read from the index of open steps: a run may have ten thousand
-- steps that are done.
create or replace function open_waits(run uuid) returns setof workflow_step language sql stable as $$
    select * from workflow_step
    where run_id = run and status = 'waiting' and finished_at is null
    order by due_at nulls last, seq
$$;

-- Waits that were settled without the holder, oldest first. A child that was only started was not waited for.
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

-- True when those waits are too large for an answer about many runs: more than 64 KiB, counted as in claim and load.
-- Values whose stored size is already larger are not read.
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

-- The highest number that a step was ever given, also to a step that was forgotten.
create or replace function highest_seq(run uuid, step_mark integer) returns integer language plpgsql stable
set enable_sort = off as $$
begin
    return greatest(step_mark, (
        select s.seq from workflow_step as s where s.run_id = run order by s.seq desc limit 1
    ));
end $$;

-- The current step of a run. For a plan: number and name of the first step that has not succeeded, or the name of the last step
-- without a number. For code: the name of the last step with an outcome, without a number. PL/pgSQL, because SQL would
-- be planned again for each run of a list.
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

-- The run as people see it, and whether it owes something to others.
create or replace function run_record(r workflow_run) returns json language plpgsql stable as $$
declare
    place record := current_place(r.id, r.kind);
    present uuid := r.present;
    first_owes integer := r.owes;
    a workflow_account;
begin
    if r.account is not null then
        select * into a from workflow_account as x where x.id = r.account;
    end if;
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
        'updated_at', shown_at(changed_at(r.id, r.status, r.updated_at)),
        'started_at', shown_at(r.started_at), 'finished_at', shown_at(r.finished_at),
        'deleted_at', shown_at(r.deleted_at), 'origin', r.origin, 'account', r.account,
        'account_cost_units', a.spent, 'account_budget_units', a.budget, 'owes', r.owes > 0, 'chain_owes', first_owes & 16 > 0
    );
end $$;
