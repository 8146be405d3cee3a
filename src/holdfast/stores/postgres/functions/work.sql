-- transact: what a function of the user's writes, and the checkpoint that says so, in one commit. The run is not locked while
-- that function runs, so that its renewals go on: whether it is held is asked before, and again at the end.
--
-- The transaction is in the hands of user code meanwhile. It carries a pledge, which only `end_work` keeps: a commit of
-- anybody else's fails with it, and a transaction that was begun anew does not have it.

create or replace function begin_work(call json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    item jsonb := call -> 'item';
    pledge text := gen_random_uuid();
    verdict json;
    at tid;
begin
    if call ->> 'place' is not null and call ->> 'place' <> whereabouts() then
        return json_build_object('elsewhere', current_database());
    end if;
    perform refuse_old_snapshot();
    verdict := refused_work(item, clock(), false);
    if verdict is not null then
        return json_build_object('verdict', verdict);
    end if;
    insert into workflow_pledge (id) values (pledge) returning ctid into at;
    delete from workflow_pledge where ctid = at;
    perform set_config('holdfast.pledge', pledge, true);
    perform limit_session('statement_timeout', (call ->> 'limit_seconds')::double precision);
    perform limit_session('idle_in_transaction_session_timeout', (call ->> 'limit_seconds')::double precision);
    return json_build_object('pledge', pledge);
end $$;

-- `stays`: whether what the function has written is to be committed. `settled`: its step was done before, and it must not
-- have been done again; what else the item brings is to be sent once more, without it.
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
    if current_setting('holdfast.pledge', true) is distinct from call ->> 'pledge' then
        perform refuse('UsageError', 'the function of a transaction ' || ends_it());
    end if;
    -- What is plain looks at no topics, and has no lines.
    if call ->> 'plain' is null then
        perform wait_for_runs(array[(item ->> 'run')::uuid]);
    end if;
    if call ->> 'plain' is null and not lock_for_commit(json_build_array(call -> 'item')) then
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
    if call ->> 'plain' is not null and commit_checkpoints(call -> 'plain', now) is null then
        verdict := '{"answer":"applied","status":"leased"}';
    else
        select * into r from workflow_run as w where w.id = (item ->> 'run')::uuid;
        verdict := commit_item(r, item, now);
    end if;
    if verdict ->> 'answer' not in ('applied', 'paused') then
        return json_build_object('verdict', verdict, 'stays', false);
    end if;
    perform set_config('holdfast.kept', call ->> 'pledge', true);
    if (call ->> 'news')::boolean then
        perform hint();
    end if;
    return json_build_object('verdict', verdict, 'stays', true);
end $$;

-- The answer to one who does not hold the run, or has been here before; else null. `locking`: and nobody changes it then.
create or replace function refused_work(item jsonb, now timestamptz, locking boolean) returns json language plpgsql as $$
declare
    his_fence bigint := (item ->> 'fence')::bigint;
    his_number integer := (item ->> 'number')::integer;
    r workflow_run;
begin
    if locking then
        perform lock_runs(array[(item ->> 'run')::uuid]);
    end if;
    select * into r from workflow_run as w where w.id = (item ->> 'run')::uuid;
    if r.id is null then
        return json_build_object('answer', 'lost', 'status', 'cancelled');
    elsif r.status <> 'leased' or r.fence <> his_fence or r.lease_until < now then
        return not_held(r, item);
    elsif r.commit_fence = his_fence and his_number <= r.commit_no then
        return repeated(r, item, case when his_number = r.commit_no then r.commit_answer end);
    elsif exists (
        select 1 from workflow_step as s where s.run_id = r.id and s.fence = his_fence and s.number >= his_number
    ) then
        return repeated(r, item, null);
    end if;
    return case when r.kind = 'plan' then json_build_object('answer', 'lost', 'status', 'leased') end;
end $$;

-- The server itself stops what user code leaves behind: a statement that does not end, a session that nobody is at. A
-- second more than the function has, so that what ends in time is never cut off.
create or replace function limit_session(name text, seconds double precision) returns void language plpgsql as $$
declare
    present double precision := extract(epoch from current_setting(name)::interval);
begin
    if seconds is not null and (present = 0 or present > seconds + 1) then
        perform set_config(name, least(ceil((seconds + 1) * 1000), 2147483647)::bigint::text, true);
    end if;
end $$;

create or replace function ends_it() returns text language sql immutable as $$
    select 'ends its transaction: it may read and write tables of its own, and use savepoints; '
        'begin and commit are the engine''s'
$$;

-- At the commit, whoever makes it.
create or replace function keep_pledge() returns trigger language plpgsql set search_path from current as $$
begin
    if current_setting('holdfast.kept', true) is distinct from new.id then
        perform refuse('UsageError', 'the function of a transaction ' || ends_it());
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
