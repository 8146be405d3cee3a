-- transact: the writes of a user's function and the checkpoint that records them, in one commit. The run is not locked
-- while the function runs, so that its lease can be renewed. Whether the caller holds the run is checked before the
-- function, and again at the end.
--
-- User code has the transaction in between. The transaction carries a commit guard: a row of workflow_pledge whose deferred
-- trigger refuses the commit unless `end_work` was called. A commit by user code fails because of the guard. A transaction
-- that user code has begun anew does not have the guard, and `end_work` refuses it.

create or replace function begin_work(call json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    item jsonb := call -> 'item';
    guard text := gen_random_uuid();
    verdict json;
    at tid;
begin
    if call ->> 'database_id' is not null and call ->> 'database_id' <> database_id() then
        return json_build_object('wrong_database', current_database());
    end if;
    perform refuse_old_snapshot();
    verdict := refused_work(item, clock(), false);
    if verdict is not null then
        return json_build_object('verdict', verdict);
    end if;
    insert into workflow_pledge (id) values (guard) returning ctid into at;
    delete from workflow_pledge where ctid = at;
    perform set_config('holdfast.commit_guard', guard, true);
    perform limit_session('statement_timeout', (call ->> 'limit_seconds')::double precision);
    perform limit_session('idle_in_transaction_session_timeout', (call ->> 'limit_seconds')::double precision);
    return json_build_object('commit_guard', guard);
end $$;

-- Answer `stays`: true when the writes of the function are to be committed. Answer `settled`: the step was done before,
-- so the function's writes must be rolled back; the rest of the item is to be sent again without them.
create or replace function end_work(call json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set lock_timeout = '5s' as $$
declare
    now timestamptz := clock();
    item jsonb := call -> 'item';
    r workflow_run;
    there workflow_step;
    verdict json;
begin
    if current_setting('holdfast.commit_guard', true) is distinct from call ->> 'commit_guard' then
        perform refuse('UsageError', 'the function of a transaction ' || transaction_ended());
    end if;
    -- Items of the fast path touch no topics and no outbox queues, so they need no locks of those.
    if call ->> 'fast_rows' is null then
        perform wait_for_runs(array[(item ->> 'run')::uuid]);
    end if;
    if call ->> 'fast_rows' is null and not lock_for_commit(json_build_array(call -> 'item')) then
        return json_build_object('verdict', json_build_object('answer', 'busy', 'status', 'leased'), 'stays', false);
    end if;
    verdict := refused_work(item, now, true);
    if verdict is not null then
        return json_build_object('verdict', verdict, 'stays', false);
    end if;
    there := step_named((item ->> 'run')::uuid, item -> 'steps' -> -1 ->> 'key');
    if there.status in ('succeeded', 'failed', 'cancelled') then
        return json_build_object('settled', true, 'stays', false);
    end if;
    if call ->> 'fast_rows' is not null and commit_checkpoints(call -> 'fast_rows', now) is null then
        verdict := '{"answer":"applied","status":"leased"}';
    else
        select * into r from workflow_run as w where w.id = (item ->> 'run')::uuid;
        verdict := commit_item(r, item, now);
        if r.account is not null then
            verdict := with_left(verdict, item, r.account);
        end if;
    end if;
    if verdict ->> 'answer' not in ('applied', 'paused') then
        return json_build_object('verdict', verdict, 'stays', false);
    end if;
    perform set_config('holdfast.may_commit', call ->> 'commit_guard', true);
    if (call ->> 'news')::boolean then
        perform hint();
    end if;
    return json_build_object('verdict', verdict, 'stays', true);
end $$;

-- The verdict for a caller that does not hold the run, or that sent this item before; null when the item is to be
-- applied. `locking`: lock the run first, so that the verdict stays true until the commit.
create or replace function refused_work(item jsonb, now timestamptz, locking boolean) returns json language plpgsql as $$
declare
    item_fence bigint := (item ->> 'fence')::bigint;
    item_number integer := (item ->> 'number')::integer;
    r workflow_run;
begin
    if locking then
        perform lock_runs(array[(item ->> 'run')::uuid]);
    end if;
    select * into r from workflow_run as w where w.id = (item ->> 'run')::uuid;
    if r.id is null then
        return json_build_object('answer', 'lost', 'status', 'cancelled');
    elsif r.status <> 'leased' or r.fence <> item_fence or r.lease_until < now then
        return not_held(r, item);
    elsif r.commit_fence = item_fence and item_number <= r.commit_no then
        return repeated(r, item, case when item_number = r.commit_no then r.commit_answer end);
    elsif exists (
        select 1 from workflow_step as s where s.run_id = r.id and s.fence = item_fence and s.number >= item_number
    ) then
        return repeated(r, item, null);
    end if;
    return case when r.kind = 'plan' then json_build_object('answer', 'lost', 'status', 'leased') end;
end $$;

-- Let the server stop what user code leaves behind: a statement that does not end, or a session that nobody uses. The
-- limit is one second longer than the function's own, so that a function that ends in time is never cut off.
create or replace function limit_session(name text, seconds double precision) returns void language plpgsql as $$
declare
    current_limit double precision := extract(epoch from current_setting(name)::interval);
begin
    if seconds is not null and (current_limit = 0 or current_limit > seconds + 1) then
        perform set_config(name, least(ceil((seconds + 1) * 1000), 2147483647)::bigint::text, true);
    end if;
end $$;

create or replace function transaction_ended() returns text language sql immutable as $$
    select 'ends its transaction: it may read and write tables of its own, and use savepoints; '
        'begin and commit are the engine''s'
$$;

-- The commit guard: runs at every commit of a transaction that `begin_work` began.
create or replace function keep_pledge() returns trigger language plpgsql set search_path from current as $$
begin
    if current_setting('holdfast.may_commit', true) is distinct from new.id then
        perform refuse('UsageError', 'the function of a transaction ' || transaction_ended());
    end if;
    return null;
end $$;

do $$
begin
    if not exists (
        select 1 from pg_trigger as g where g.tgrelid = 'workflow_pledge'::regclass and g.tgname = 'keep_pledge'
    ) then
        create constraint trigger keep_pledge after insert on workflow_pledge
        deferrable initially deferred for each row execute function keep_pledge();
    end if;
end $$;
