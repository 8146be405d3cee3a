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

-- Everything that settling waits of these runs needs. What a plan got meanwhile is locked late: rare, and if two do it
-- crosswise, one of them is sent again.
create or replace function lock_waits(runs uuid[]) returns void language plpgsql as $$
declare
    names text[];
    late text[];
begin
    perform wait_for_runs(runs);
    names := open_topics(runs);
    perform lock_topics(names);
    perform lock_runs(runs);
    late := array(select unnest(open_topics(runs)) except select unnest(names));
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

-- The same for those who can come back later: one row that somebody keeps locked must not stop all the others. The runs
-- that it got; null: not even the topics.
create or replace function lock_some_waits(runs uuid[], topics text[]) returns uuid[] language plpgsql as $$
declare
    names text[] := topics || open_topics(runs);
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
    if not open_topics(got) <@ names then
        perform lock_topics(open_topics(got));
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
