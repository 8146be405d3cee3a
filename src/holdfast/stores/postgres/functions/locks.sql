-- What whoever settles waits, or opens them, has to himself: the buckets of the topics, then the rows of the runs. One who
-- opens a wait holds its bucket before he looks for an event: whoever delivers that takes it too, after the event was
-- committed, so that either the one sees the event, or the other sees the wait.

-- The topics that open rows of these runs name, as lock_topics wants them.
create or replace function open_topics(runs uuid[]) returns text[] language plpgsql stable
set enable_seqscan = off as $$
begin
    return array(
        select distinct s.tenant || U&'\001F' || s.topic from workflow_step as s
        where s.run_id = any(runs) and s.finished_at is null and s.topic is not null
    );
end $$;

-- The same for plans only. A plan whose wait is settled goes on to its next row, and may open a wait there. Code opens waits
-- by its own commits only, so that settling one wait of it needs no other topic, however many are open.
create or replace function plan_run_topics(runs uuid[]) returns text[] language plpgsql stable
set enable_seqscan = off as $$
declare
    plans uuid[] := array(select r.id from workflow_run as r where r.id = any(runs) and r.kind = 'plan');
begin
    return case when plans = '{}' then '{}' else open_topics(plans) end;
end $$;

-- The topics that a commit locks which looks at all open waits of these runs: those of plans, and those where an event may
-- be found. A wait that stood before this commit can be seen by whoever delivers: the row of the run is lock enough.
create or replace function topics_to_look_at(runs uuid[]) returns text[] language plpgsql stable
set enable_seqscan = off as $$
begin
    return array(
        select distinct s.tenant || U&'\001F' || s.topic
        from (select * from workflow_run as w where w.id = any(runs) offset 0) as r
        -- The runs lead: a join might begin with every step that there is.
        cross join lateral (
            select * from workflow_step as w
            where w.run_id = r.id and w.finished_at is null and w.topic is not null offset 0
        ) as s
        where r.kind = 'plan' or may_have_come(coalesce(r.chain, r.id), r.tenant, s.topic, r.inbox_mark, s.since_mark)
    );
end $$;

-- Whether an event may be there that a wait can take: a cheap look, before the exact one. It takes no rows, which would
-- carry their values along.
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

-- Everything that settling a decision or going on needs. What a plan got meanwhile is locked late: rare, and if two do it
-- crosswise, one of them is sent again.
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

-- Until nobody has them, without keeping them: who waited for a row with a bucket in his hands, while somebody looks at
-- that row for minutes, would stop all who have to do with its topics.
create or replace function wait_for_runs(runs uuid[]) returns void language plpgsql as $$
begin
    perform lock_runs(runs);
    raise sqlstate 'HFLET';
exception when sqlstate 'HFLET' then
    null;
end $$;

-- How long a chore waits for what others hold: less than the server takes to call it a deadlock.
create or replace function lock_patience() returns text language sql immutable as $$select '500ms'$$;

-- The same for those who can come back later, with the topics of the waits that they settle: one row that somebody keeps
-- locked must not stop all the others. The runs that it got; null: not even the topics.
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

-- The runs, under topics that are locked; what they have got meanwhile is locked late.
create or replace function lock_some_under(runs uuid[], names text[]) returns uuid[] language plpgsql as $$
declare
    got uuid[] := lock_some(runs);
begin
    if not plan_run_topics(got) <@ names then
        perform lock_topics(plan_run_topics(got));
    end if;
    return got;
end $$;

-- Without waiting, and then for the rest once, not long.
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
