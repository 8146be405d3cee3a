-- purge: remove expired rows for good, oldest first. A run stays while a message of its outbox is not sent, while its
-- open parent waits for it, and while its children are still to be cancelled. But a run that is deleted and open will
-- never end: its parent is told so when the run is removed, unless the parent is deleted too.
--
-- terms: ttl_seconds, deleted_seconds, limit (runs a slice), rows and bytes (the most of one kind that one commit removes;
-- bytes as they are stored, which is the cost of removing them; the last row may exceed it), and past: up to where all rows are
-- held or gone, as the previous slice has answered. Returns what was removed, the new past, and whether to call again
-- although nothing was removed. What one commit cannot remove is hidden from everybody for good, and later commits
-- remove it.
create or replace function purge(terms json) returns json
language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off as $$
declare
    now timestamptz := clock();
    deleted timestamptz := now - span(coalesce((terms ->> 'deleted_seconds')::double precision, 7 * 86400));
    finished timestamptz := now - span(coalesce((terms ->> 'ttl_seconds')::double precision, 30 * 86400));
    most integer := greatest(0, coalesce((terms ->> 'limit')::integer, 100));
    rows_left integer := greatest(1, coalesce((terms ->> 'rows')::integer, 5000));
    bytes_left bigint := greatest(1, coalesce((terms ->> 'bytes')::bigint, 33554432));
    found uuid[];
    runs uuid[];
    past json;
begin
    select e.runs, e.past into found, past from expired_runs(now, deleted, finished, most, terms -> 'past') as e;
    runs := first_runs(found, bytes_left);
    if cardinality(runs) < cardinality(found) then
        -- The other runs are found again: the next slice begins where this one did.
        past := case when json_typeof(terms -> 'past') = 'object'
            then (terms -> 'past')::jsonb || '{"went": true}' else '{"list": 0, "went": true}' end;
    end if;
    if runs <> '{}' then
        runs := runs || firsts_of(runs);
        rows_left := remove_rows_of(runs, rows_left, bytes_left);
        if rows_left > 0 then
            perform remove_runs(runs, now);
        else
            update workflow_run as w set deleted_at = '-infinity', rev = w.rev + 1 where w.id = any(runs);
        end if;
    end if;
    if rows_left = 0 or runs = '{}' and past is not null then
        return json_build_object('gone', '{}'::json, 'past', past, 'more', true);
    end if;
    return json_build_object('past', past, 'more', false, 'gone', json_build_object(
        'runs', cardinality(runs), 'events', remove_events(now, rows_left, bytes_left), 'workers', remove_workers(now),
        'claims', remove_claims(now, rows_left), 'audit', remove_audit(now, rows_left),
        'api_keys', remove_keys(now, rows_left), 'sessions', remove_sessions(now, rows_left)
    ));
end $$;

-- Runs that can be removed, locked, from the first list that has any; runs that are half removed come first. No runs
-- and no past: everything was checked, and nothing was removed meanwhile, because a removal may free other runs.
create or replace function expired_runs(
    now timestamptz, deleted timestamptz, finished timestamptz, most integer, before json,
    out runs uuid[], out past json
) language plpgsql as $$
declare
    at_list integer := coalesce((before ->> 'list')::integer, 0);
    at timestamptz := before ->> 'at';
    id uuid := before ->> 'id';
    went boolean := coalesce((before ->> 'went')::boolean, false);
    list record;
    seen record;
begin
    runs := '{}';
    for list in
        select l.number, l.name, l.until from (values
            (0, 'deleted', '-infinity'), (1, 'deleted', deleted), (2, 'expired', now), (3, 'finished', finished)
        ) as l (number, name, until)
        where most > 0 and (l.number = 0 or l.number >= at_list) order by l.number
    loop
        seen := free_ones(list.name, list.until, case when list.number = at_list then at end,
                          case when list.number = at_list then id end, most);
        if seen.free <> '{}' then
            runs := lock_expired(seen.free, now, deleted, finished);
        end if;
        went := went or runs <> '{}';
        if list.number > 0 and cardinality(runs) in (0, cardinality(seen.free)) then
            at_list := list.number;
            at := seen.at;
            id := seen.id;
        end if;
        if runs <> '{}' or list.number > 0 and not seen.was_all then
            past := json_build_object('list', at_list, 'at', at, 'id', id, 'went', went);
            return;
        end if;
    end loop;
    past := case when went then '{"list":0}'::json end;
end $$;

-- The next runs of a list that nothing holds back, and how far the list was read. The number of reads is limited,
-- because all runs may be held back.
create or replace function free_ones(
    list text, until timestamptz, after_at timestamptz, after_id uuid, most integer,
    out free uuid[], out at timestamptz, out id uuid, out was_all boolean
) language plpgsql as $$
declare
    page uuid[];
    times timestamptz[];
begin
    at := after_at;
    id := after_id;
    free := '{}';
    for number in 0 .. 1000 / most loop
        select array_agg(e.id), array_agg(e.at) into page, times from some_expired(list, until, at, id, most) as e;
        was_all := coalesce(cardinality(page), 0) < most;
        exit when page is null;
        free := free_of(page);
        at := times[cardinality(page)];
        id := page[cardinality(page)];
        exit when was_all or free <> '{}';
    end loop;
end $$;

-- The next few runs of a list, by its index.
create or replace function some_expired(
    list text, until timestamptz, after_at timestamptz, after_id uuid, most integer
) returns table (id uuid, at timestamptz) language plpgsql stable as $$
#variable_conflict use_column
declare
    from_at timestamptz := coalesce(after_at, '-infinity');
    from_id uuid := coalesce(after_id, '00000000-0000-0000-0000-000000000000');
begin
    if list = 'deleted' then
        return query select w.id, w.deleted_at from workflow_run as w
        where w.deleted_at is not null and w.deleted_at <= until and (w.deleted_at, w.id) > (from_at, from_id)
        order by w.deleted_at, w.id limit most;
    elsif list = 'expired' then
        return query select w.id, w.expires_at from workflow_run as w
        where w.expires_at is not null and w.expires_at <= until and (w.expires_at, w.id) > (from_at, from_id)
            and w.finished_at is not null
        order by w.expires_at, w.id limit most;
    else
        return query select w.id, w.finished_at from workflow_run as w
        where w.finished_at is not null and w.finished_at <= until and (w.finished_at, w.id) > (from_at, from_id)
            and w.expires_at is null
        order by w.finished_at, w.id limit most;
    end if;
end $$;

create or replace function has_expired(
    r workflow_run, now timestamptz, deleted timestamptz, finished timestamptz
) returns boolean language sql immutable as $$
    select coalesce(r.deleted_at <= deleted, false)
        or r.finished_at is not null and coalesce(r.expires_at <= now, r.finished_at <= finished)
$$;

-- Those of the runs that nothing holds back.
create or replace function free_of(runs uuid[]) returns uuid[] language plpgsql stable as $$
begin
    return array(
        select w.id from workflow_run as w where w.id = any(runs) and w.owes < 2
            and not exists (select 1 from workflow_outbox as o where o.run_id = w.id and o.status = 'pending')
            and (w.parent_id is null or not exists (
                select 1 from workflow_run as parent join workflow_step as s on s.run_id = parent.id
                where parent.id = w.parent_id and parent.finished_at is null
                    and (w.finished_at is not null or parent.deleted_at is not null)
                    and s.status = 'waiting' and s.child_id = w.id and s.finished_at is null
            ))
            and (w.present is null or not exists (select 1 from workflow_run as last where last.id = w.present))
            and (w.chain is null or not exists (
                select 1 from workflow_run as head where head.id = w.chain and head.present = w.id and (
                    head.owes > 1
                    or exists (select 1 from workflow_outbox as o where o.run_id = head.id and o.status = 'pending')
                    or exists (select 1 from workflow_run as link where link.chain = w.chain and link.id <> w.id)
                )
            ))
    );
end $$;

-- Lock those runs that no other session has locked, that are still expired and still free. With a run that has not
-- ended, its parent is locked too, because it may wait for the run: what the parent does meanwhile must not be missed.
create or replace function lock_expired(
    runs uuid[], now timestamptz, deleted timestamptz, finished timestamptz
) returns uuid[] language plpgsql as $$
declare
    got uuid[] := array(
        select w.id from workflow_run as w where w.id = any(runs) and has_expired(w, now, deleted, finished)
        order by w.id for update skip locked
    );
    wanted uuid[] := array(
        select w.parent_id from workflow_run as w
        where w.id = any(got) and w.finished_at is null and w.parent_step is not null
    );
    parents uuid[] := array(
        select w.id from workflow_run as w where w.id = any(wanted) order by w.id for no key update skip locked
    );
begin
    if wanted <> '{}' then
        got := array(
            select w.id from workflow_run as w where w.id = any(got) and (
                w.finished_at is not null or w.parent_step is null or w.parent_id = any(parents)
                or not exists (select 1 from workflow_run as parent where parent.id = w.parent_id)
            )
        );
    end if;
    return with_firsts_free(free_of(got));
end $$;

-- Those of the runs whose chain's first run is free too. The first run is removed together with the last one. It is
-- locked here.
create or replace function with_firsts_free(runs uuid[]) returns uuid[] language plpgsql as $$
declare
    wanted uuid[] := firsts_of(runs);
    got uuid[] := array(select w.id from workflow_run as w where w.id = any(wanted) order by w.id for update skip locked);
begin
    if wanted = '{}' then
        return runs;
    end if;
    return array(
        select w.id from workflow_run as w where w.id = any(runs) and not exists (
            select 1 from workflow_run as head where head.id = w.chain and head.present = w.id and head.id <> all(got)
        )
    );
end $$;

-- The first runs of the chains whose last run is among these. A join could be read from its other end: with statistics
-- of an empty table the planner may begin with all first runs.
create or replace function firsts_of(runs uuid[]) returns uuid[] language plpgsql stable as $$
begin
    return array(
        select w.chain from workflow_run as w where w.id = any(runs) and w.chain is not null
            and (select head.present from workflow_run as head where head.id = w.chain) = w.id
    );
end $$;

-- The first of these runs, as many as fit into `bytes` with their own rows; at least one, if there is one.
create or replace function first_runs(runs uuid[], bytes bigint) returns uuid[] language plpgsql as $$
declare
    one uuid;
    first uuid[] := '{}';
begin
    foreach one in array runs loop
        bytes := bytes - (
            select coalesce(pg_column_size(r.payload), 0) + coalesce(pg_column_size(r.result), 0)
                + coalesce(pg_column_size(r.error), 0) + coalesce(pg_column_size(r.labels), 0)
            from workflow_run as r where r.id = one
        );
        exit when bytes < 0 and first <> '{}';
        first := first || one;
    end loop;
    return first;
end $$;

-- Remove all rows of these runs, or as many rows or bytes as allowed. Returns how many more rows could have been
-- removed; 0: there may be more.
create or replace function remove_rows_of(runs uuid[], most integer, bytes bigint) returns integer language plpgsql as $$
declare
    removed integer;
begin
    with part as materialized (
        select t.id, coalesce(pg_column_size(t.data), 0) as size,
            sum(coalesce(pg_column_size(t.data), 0)) over (rows unbounded preceding) as total
        from workflow_event as t where t.workflow_id = any(runs) limit most
    ), gone as (
        delete from workflow_event as e using part where e.id = part.id and part.total - part.size < bytes
        returning part.size
    )
    select most - count(*), bytes - coalesce(sum(g.size), 0) into most, bytes from gone as g;
    if most <= 0 or bytes <= 0 then
        return 0;
    end if;
    with part as materialized (
        select t.run_id, t.seq, coalesce(pg_column_size(t.output), 0) + coalesce(pg_column_size(t.error), 0) + coalesce(pg_column_size(t.ask), 0) + coalesce(pg_column_size(t.wake), 0) as size,
            sum(coalesce(pg_column_size(t.output), 0) + coalesce(pg_column_size(t.error), 0) + coalesce(pg_column_size(t.ask), 0) + coalesce(pg_column_size(t.wake), 0)) over (rows unbounded preceding) as total
        from workflow_step as t where t.run_id = any(runs) limit most
    ), gone as (
        delete from workflow_step as s using part where s.run_id = part.run_id and s.seq = part.seq and part.total - part.size < bytes
        returning part.size
    )
    select most - count(*), bytes - coalesce(sum(g.size), 0) into most, bytes from gone as g;
    if most <= 0 or bytes <= 0 then
        return 0;
    end if;
    delete from workflow_chain_topic as c using (
        select t.chain, t.topic from workflow_chain_topic as t where t.chain = any(runs) limit most
    ) as part where c.chain = part.chain and c.topic = part.topic;
    get diagnostics removed = row_count;
    most := most - removed;
    if most <= 0 then
        return 0;
    end if;
    delete from workflow_receipt as r using (
        select t.run_id, t.event_seq from workflow_receipt as t where t.run_id = any(runs) limit most
    ) as part where r.run_id = part.run_id and r.event_seq = part.event_seq;
    get diagnostics removed = row_count;
    most := most - removed;
    if most <= 0 then
        return 0;
    end if;
    with part as materialized (
        select t.seq, coalesce(pg_column_size(t.payload), 0) as size,
            sum(coalesce(pg_column_size(t.payload), 0)) over (rows unbounded preceding) as total
        from workflow_inbox as t where t.run_id = any(runs) limit most
    ), gone as (
        delete from workflow_inbox as i using part where i.seq = part.seq and part.total - part.size < bytes
        returning part.size
    )
    select most - count(*), bytes - coalesce(sum(g.size), 0) into most, bytes from gone as g;
    if most <= 0 or bytes <= 0 then
        return 0;
    end if;
    with part as materialized (
        select t.seq, coalesce(pg_column_size(t.payload), 0) + coalesce(pg_column_size(t.last_error), 0) as size,
            sum(coalesce(pg_column_size(t.payload), 0) + coalesce(pg_column_size(t.last_error), 0)) over (rows unbounded preceding) as total
        from workflow_outbox as t where t.run_id = any(runs) limit most
    ), gone as (
        delete from workflow_outbox as o using part where o.seq = part.seq and part.total - part.size < bytes
        returning part.size
    )
    select most - count(*), bytes - coalesce(sum(g.size), 0) into most, bytes from gone as g;
    if most <= 0 or bytes <= 0 then
        return 0;
    end if;
    return most;
end $$;

create or replace function remove_runs(runs uuid[], now timestamptz) returns void language plpgsql as $$
declare
    gone workflow_run;
begin
    delete from workflow_running as w where w.run_id = any(runs);
    delete from workflow_account as a where a.id = any(runs);
    for gone in delete from workflow_run as w where w.id = any(runs) returning w.* loop
        if gone.parent_step is not null and tell_parent(gone, now) then
            perform hint();
        end if;
    end loop;
end $$;

-- Remove delivered events whose retention has ended. An event that is addressed to a run is removed with the run, if
-- the run exists.
create or replace function remove_events(now timestamptz, most integer, bytes bigint) returns integer
language plpgsql as $$
declare
    removed integer;
begin
    with gone as (delete from workflow_inbox as i using (
        select o.seq, o.size, sum(o.size) over (rows unbounded preceding) as total from (
            select o.seq, coalesce(pg_column_size(o.payload), 0) as size from workflow_inbox as o
            where o.keep_until is not null and o.keep_until <= now and o.at <= now - span(7 * 86400) and o.delivered
                and (o.run_id is null or not exists (select 1 from workflow_run as w where w.id = o.run_id)
                    or exists (select 1 from workflow_receipt as x where x.event_seq = o.seq and x.link is not null))
            order by o.keep_until limit most
        ) as o
    ) as over where i.seq = over.seq and over.total - over.size < bytes returning i.seq
    ), receipts as (
        delete from workflow_receipt as x using gone where x.event_seq = gone.seq and x.link is not null
    )
    select count(*) into removed from gone;
    return removed;
end $$;

create or replace function remove_workers(now timestamptz) returns integer language plpgsql as $$
declare
    removed integer;
begin
    delete from workflow_worker as w where w.seen_at <= now - span(7 * 86400);
    get diagnostics removed = row_count;
    return removed;
end $$;

-- Remove uses that no rate counts any more; claims remove some too.
create or replace function remove_claims(now timestamptz, most integer) returns integer language plpgsql as $$
declare
    removed integer;
begin
    delete from workflow_limit_use as u using (
        select t.scope, t.name, t.at from workflow_limit_use as t where t.gone_at <= now order by t.gone_at limit most
    ) as over where u.scope = over.scope and u.name = over.name and u.at = over.at;
    get diagnostics removed = row_count;
    return removed;
end $$;
