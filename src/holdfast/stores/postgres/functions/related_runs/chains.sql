-- Chains: runs that continued as another run, which are one run to the outside. Every later run names the first run,
-- and the first run names the present one: two rows lead from any run to any other, however long the chain is. The row
-- of the first run is the lock of its chain: whoever acts on the present run holds both rows, the first run's row
-- first. A commit that continues the chain holds the row of its own run already, so it must not wait for the first row:
-- the item is answered `busy` and sent again.

-- The first run of the chain that a run is in; the run itself, if it is in none or unknown.
create or replace function chain_of(run uuid) returns uuid language plpgsql stable as $$
begin
    return coalesce((select w.chain from workflow_run as w where w.id = run), run);
end $$;

-- The present run of a chain, by its first run.
create or replace function present_of(first uuid) returns uuid language plpgsql stable as $$
begin
    return coalesce((select w.present from workflow_run as w where w.id = first), first);
end $$;

-- The run that continues the chain, of those that a complete has started. It sees the events since the
-- chain's start, has the cost, budget and priority of the chain so far, takes over a pause that was asked for, and
-- counts under the same API key.
create or replace function go_on_as(r workflow_run, w writing, starts json, answers json, now timestamptz) returns void
language plpgsql as $$
declare
    head uuid := coalesce(r.chain, r.id);
    next uuid;
begin
    select (n.start ->> 'id')::uuid into next
    from rows from (json_array_elements(starts), json_array_elements(answers)) as n (start, answer)
    where n.start ->> 'follows' = r.id::text and n.start ->> 'type' = r.type and (n.answer ->> 'created')::boolean
    limit 1;
    if next is null or r.kind <> 'code' or not exists (
        select 1 from workflow_run as x where x.id = next and x.kind = 'code'
    ) then
        return;
    end if;
    perform 1 from workflow_run as x where x.id = head for no key update skip locked;
    if not found then
        raise exception using errcode = 'lock_not_available', message = 'another session has locked the first run of the chain';
    end if;
    update workflow_run as x set present = next, rev = x.rev + 1 where x.id = head;
    update workflow_run as x
    set chain = head, inbox_mark = r.inbox_mark, cost = r.cost + w.cost, priority = r.priority,
        budget = r.budget, account = r.account, api_key = r.api_key,
        status = case when w.pause_by is null then 'pending' else 'paused' end,
        resume_to = case when w.pause_by is not null then 'pending' end, pause_asked_by = w.pause_by, rev = x.rev + 1
    where x.id = next;
    if w.pause_by is not null then
        perform note(next, 'paused', '{"by":' || to_json(w.pause_by)::text || '}', now);
    end if;
    perform pass_topics(r, head);
end $$;

-- The topics of the events that a run has taken, those with most events first.
create or replace function topics_taken(r workflow_run) returns setof text language plpgsql stable as $$
begin
    return query select i.topic::text
    from (
        select x.event_seq from workflow_receipt as x where r.chain is null and x.run_id = r.id and x.link is null
        union all
        select x.event_seq from workflow_receipt as x where r.chain is not null and x.link = r.id
    ) as taken
    join workflow_inbox as i on i.seq = taken.event_seq
    group by i.topic order by count(*) desc limit 100;
end $$;

-- Store how far the chain has taken all events of a topic. Events that earlier runs took are never free again, so a
-- wait begins to look behind them. An event that is not committed yet may have a lower number: the session that
-- delivers it corrects this, under the bucket of the topic (hand_over). So a topic is only processed when its bucket is
-- free; otherwise the next run processes it. Receipts of a later run are not kept for ever, even for events that were
-- addressed to the chain.
create or replace function pass_topics(r workflow_run, head uuid) returns void language plpgsql as $$
declare
    named text;
    since bigint;
    upto bigint;
    walked integer;
begin
    if r.chain is not null then
        update workflow_inbox as i set keep_until = i.at + span(7 * 86400)
        where i.run_id = head and i.keep_until is null
            and i.seq = any(array(select x.event_seq from workflow_receipt as x where x.link = r.id));
    end if;
    for named in select * from topics_taken(r) loop
        continue when not try_topic(r.tenant || U&'\001F' || named);
        since := passed(head, named);
        select least(e.left_at, o.left_at) - 1, e.walked + o.walked into upto, walked
        from walk_taken(r.tenant, named, null, head, greatest(since, r.inbox_mark)) as e,
            walk_taken(r.tenant, named, head, head, since) as o;
        if walked >= 16 then
            insert into workflow_chain_topic (chain, topic, tenant, passed)
            values (head, named, r.tenant, coalesce(upto, last_of_topic(r.tenant, named, head)))
            on conflict on constraint workflow_chain_topic_pkey do update set passed = excluded.passed;
        end if;
    end loop;
end $$;

-- Walk the events of a topic, those for everyone or those for a chain, as far as the chain has taken them. Returns the
-- first event that it has not taken, and how many come before.
create or replace function walk_taken(
    whose text, named text, addressed uuid, head uuid, since bigint, out left_at bigint, out walked integer
) language plpgsql stable set enable_sort = off as $$
declare
    one record;
begin
    walked := 0;
    for one in
        select i.seq, (
            select 1 from workflow_receipt as x where x.run_id = head and x.event_seq = i.seq limit 1
        ) is not null as is_taken
        from workflow_inbox as i
        where addressed is null and i.tenant = whose and i.topic = named and i.run_id is null and i.seq > since
            and not i.late
        order by i.run_id, i.seq
    loop
        if not one.is_taken then
            left_at := one.seq;
            return;
        end if;
        walked := walked + 1;
    end loop;
    for one in
        select i.seq, (
            select 1 from workflow_receipt as x where x.run_id = head and x.event_seq = i.seq limit 1
        ) is not null as is_taken
        from workflow_inbox as i
        where i.tenant = whose and i.topic = named and i.run_id >= addressed and i.run_id <= addressed and i.seq > since
            and not i.late
        order by i.run_id, i.seq
    loop
        if not one.is_taken then
            left_at := one.seq;
            return;
        end if;
        walked := walked + 1;
    end loop;
end $$;

create or replace function last_of_topic(whose text, named text, head uuid) returns bigint language plpgsql stable
set enable_sort = off as $$
begin
    return greatest((
        select i.seq from workflow_inbox as i where i.tenant = whose and i.topic = named and i.run_id is null
        order by i.run_id desc, i.seq desc limit 1
    ), (
        select i.seq from workflow_inbox as i
        where i.tenant = whose and i.topic = named and i.run_id >= head and i.run_id <= head
        order by i.run_id desc, i.seq desc limit 1
    ));
end $$;

create or replace function passed(head uuid, named text) returns bigint language plpgsql stable as $$
begin
    return coalesce((select t.passed from workflow_chain_topic as t where t.chain = head and t.topic = named), 0);
end $$;

-- Lock the bucket of a topic if no other session has it.
create or replace function try_topic(name text) returns boolean language sql as
    'select pg_try_advisory_xact_lock(1752132452, (hashtextextended(name, 0) & 1023)::integer)';

-- Free the events that these steps of this run have taken.
create or replace function forget_receipts(r workflow_run, keys text[]) returns void language plpgsql as $$
begin
    if r.chain is null then
        delete from workflow_receipt as x where x.run_id = r.id and x.step = any(keys) and x.link is null;
    else
        delete from workflow_receipt as x where x.link = r.id and x.step = any(keys);
    end if;
end $$;

-- Delete or restore one slice of the other runs of a chain, like its first run.
create or replace function follow_first(r workflow_run, behind uuid, lim integer, now timestamptz) returns json
language plpgsql as $$
declare
    others uuid[] := unlike_first(r, lim);
    got uuid[] := lock_some(others || r.id);
    changed integer := 0;
    one uuid;
begin
    if r.id <> all(got) then
        return json_build_object('woken', 0, 'left', json_build_object('owing', r.id)::text);
    end if;
    select w.* into r from workflow_run as w where w.id = r.id;
    foreach one in array unlike_first(r, lim) loop
        continue when one <> all(got);
        update workflow_run as w set deleted_at = r.deleted_at, updated_at = now, rev = w.rev + 1 where w.id = one;
        perform note(one, case when r.deleted_at is null then 'restored' else 'deleted' end,
                     json_build_object('by', 'chain ' || r.id)::text, now);
        changed := changed + 1;
    end loop;
    if unlike_first(r, 1) = '{}' then
        update workflow_run as w set owes = w.owes & ~16, rev = w.rev + 1 where w.id = r.id and w.owes & 16 > 0;
        changed := changed + 1;
    end if;
    return json_build_object('woken', 0, 'left', json_build_object(
        'owing', case when changed > 0 then behind else r.id end
    )::text);
end $$;

-- Two statements, each with a condition that matches an index, so that runs that are done already are not read.
create or replace function unlike_first(r workflow_run, lim integer) returns uuid[] language plpgsql stable
set enable_sort = off set enable_seqscan = off as $$
begin
    if r.deleted_at is null then
        return array(
            select c.id from workflow_run as c where c.chain = r.id and c.deleted_at > '-infinity'
            order by c.deleted_at, c.id limit lim
        );
    end if;
    return array(
        select c.id from workflow_run as c where c.chain = r.id and c.deleted_at is null
        order by c.deleted_at, c.id limit lim
    );
end $$;
