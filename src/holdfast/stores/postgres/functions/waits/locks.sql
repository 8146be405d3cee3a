-- The locks of a session that opens or settles waits: the buckets of the topics, then the rows of the runs. A session
-- that opens a wait holds the bucket before it looks for an event. The session that delivers the event takes the same
-- bucket, after the event was committed. So one of them sees the event, or the other sees the wait.

-- The topics of the open steps of these runs, as lock_topics takes them.
create or replace function open_topics(runs uuid[]) returns text[] language plpgsql stable
set enable_seqscan = off as $$
begin
    return array(
        select distinct s.tenant || U&'\001F' || s.topic from workflow_step as s
        where s.run_id = any(runs) and s.finished_at is null and s.topic is not null
    );
end $$;

-- The same for plans only. A plan whose wait is settled goes on to its next row, and may open a wait there. Code opens
-- waits only by its own commits, so that settling one of its waits needs no other topic, however many are open.
create or replace function plan_run_topics(runs uuid[]) returns text[] language plpgsql stable
set enable_seqscan = off as $$
declare
    plans uuid[] := array(select r.id from workflow_run as r where r.id = any(runs) and r.kind = 'plan');
begin
    return case when plans = '{}' then '{}' else open_topics(plans) end;
end $$;

-- The topics that a commit locks when it looks at all open waits of these runs: those of plans, and those where an
-- event may be found. A wait that was there before this commit is visible to sessions that deliver; the lock of the
-- run's row is enough for it.
create or replace function topics_to_look_at(runs uuid[]) returns text[] language plpgsql stable
set enable_seqscan = off as $$
begin
    return array(
        select distinct s.tenant || U&'\001F' || s.topic
        from (select * from workflow_run as w where w.id = any(runs) offset 0) as r
        -- Start with the runs: a join might start with all steps of the store.
        cross join lateral (
            select * from workflow_step as w
            where w.run_id = r.id and w.finished_at is null and w.topic is not null offset 0
        ) as s
        where r.kind = 'plan' or may_have_come(coalesce(r.chain, r.id), r.tenant, s.topic, r.inbox_mark, s.since_mark)
    );
end $$;

-- True when there may be an event that a wait can take: a cheap check before the exact one. It takes no rows as
-- arguments, because rows would carry their values.
create or replace function may_have_come(run uuid, whose text, topic text, run_mark bigint, wait_mark bigint)
returns boolean language plpgsql stable as $$
begin
    return (
        select 1 from workflow_inbox as i
        where i.tenant = whose and i.topic = may_have_come.topic and i.run_id is null
            and i.seq > greatest(run_mark, wait_mark) limit 1
    ) is not null or (
        select 1 from workflow_inbox as i
        where i.tenant = whose and i.topic = may_have_come.topic and i.run_id = run and i.seq > wait_mark limit 1
    ) is not null;
end $$;

-- Lock everything that is needed to settle a decision or to go on. What a plan got meanwhile is locked late. That is
-- rare; if two sessions do it crosswise, one of them fails and is sent again.
create or replace function lock_waits(runs uuid[]) returns void language plpgsql as $$
declare
    names text[];
    late text[];
begin
    perform wait_for_runs(runs);
    names := plan_run_topics(runs);
    perform lock_topics(names);
    perform lock_runs(runs);
    late := array(select unnest(plan_run_topics(runs)) except select unnest(names));
    if cardinality(late) > 0 then
        perform lock_topics(late);
    end if;
end $$;

-- Wait until no session holds these rows, without keeping them. A session that waited for a row while it holds a bucket
-- would stop everything that needs those topics.
create or replace function wait_for_runs(runs uuid[]) returns void language plpgsql as $$
begin
    perform lock_runs(runs);
    raise sqlstate 'HFLET';
exception when sqlstate 'HFLET' then
    null;
end $$;

-- The time that a chore waits for locks of others: less than the server's deadlock timeout.
create or replace function lock_patience() returns text language sql immutable as $$select '500ms'$$;

-- The same for chores, which can come back later, with the topics of the waits that they settle. One row that stays
-- locked must not stop all the others. Returns the runs that were locked; null: not even the topics.
create or replace function lock_some_waits(runs uuid[], topics text[]) returns uuid[] language plpgsql as $$
declare
    names text[] := topics || plan_run_topics(runs);
begin
    return case when lock_some_topics(names) then lock_some_under(runs, names) end;
end $$;

create or replace function lock_some_topics(names text[]) returns boolean language plpgsql as $$
declare
    before text := current_setting('lock_timeout');
begin
    perform set_config('lock_timeout', lock_patience(), true);
    perform lock_topics(names);
    perform set_config('lock_timeout', before, true);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- Lock the runs, under topics that are locked already. What they have got meanwhile is locked late.
create or replace function lock_some_under(runs uuid[], names text[]) returns uuid[] language plpgsql as $$
declare
    got uuid[] := lock_some(runs);
begin
    if not plan_run_topics(got) <@ names then
        perform lock_topics(plan_run_topics(got));
    end if;
    return got;
end $$;

-- Lock rows without waiting, and then wait for the rest once, for a short time.
create or replace function lock_some(runs uuid[]) returns uuid[] language plpgsql as $$
declare
    before text := current_setting('lock_timeout');
    got uuid[] := array(
        select r.id from workflow_run as r where r.id = any(runs) order by r.id for no key update skip locked
    );
    busy uuid[] := array(select r.id from workflow_run as r where r.id = any(runs) and r.id <> all(got));
begin
    if cardinality(busy) > 0 then
        begin
            perform set_config('lock_timeout', lock_patience(), true);
            perform lock_runs(busy);
            perform set_config('lock_timeout', before, true);
            got := got || busy;
        exception when lock_not_available then
            null;
        end;
    end if;
    return got;
end $$;
