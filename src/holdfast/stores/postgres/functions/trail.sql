-- The trail: what happened, oldest first.
--
-- Its numbers are given when rows are written, but rows are seen when their transaction commits: one with a lower number
-- may come to light after one with a higher number was shown, and whoever follows by number would never see it. Of one run
-- this cannot be, for whoever writes holds its row. Over all runs only those rows are shown below which nothing can come
-- any more. Each transaction that has taken a number holds, until it is seen or undone, a lock on the table that stands in
-- pg_locks (RowExclusiveLock, which every INSERT takes; it costs nobody anything): when those have ended that had it a
-- moment ago, every number that was given by then is settled. Ours last milliseconds, and are waited for. One that lasts
-- longer is a caller's own; what came to pass after it had begun is shown when it has ended, or after ten minutes: one that
-- commits even later is seen in the trail of its runs, and by whoever reads the whole again. Transactions that have not
-- written here, however long they are, hide nothing. (Not by xmin: a row of an older transaction may have the higher
-- number; and the oldest xid of a server may be that of some other database.)

create or replace function trail(filter json, after bigint, lim integer, budget bigint default 8388608) returns json
language plpgsql volatile
set search_path from current set cursor_tuple_fraction = 1 set jit = off as $$
declare
    run uuid := (filter ->> 'run')::uuid;
    tenant text := filter ->> 'tenant';
    types text[] := texts(filter -> 'types');
    since timestamptz := moment((filter ->> 'since')::bigint);
    until timestamptz := moment((filter ->> 'until')::bigint);
    last bigint;
    records refcursor;
begin
    if run is not null then
        if not exists (select 1 from workflow_run as r where r.id = run and r.deleted_at is null) then
            return '[]';
        end if;
    elsif not exists (select 1 from workflow_event as e where e.id > after) then
        return '[]';
    else
        last := settled_to(after, clock());
    end if;
    open records no scroll for execute format(
        $sql$
            select json_build_object(
                'seq', e.id, 'run', e.workflow_id, 'type', e.event_type, 'at', shown_at(e.created_at),
                'data_json', e.data::text, 'told', e.told
            )::text from (
                select e.* from workflow_event as e where e.id > $1 and %s order by e.id limit $2
            ) as e
        $sql$,
        concat_ws(
            ' and ',
            case when run is not null then 'e.workflow_id = $3' else 'e.id <= $4' end,
            -- The remains of a run that a purge has begun to remove are nobody's business.
            case when run is null then
                $t$e.workflow_id not in (select r.id from workflow_run as r where r.deleted_at = '-infinity')$t$ end,
            case when tenant is not null then
                'exists (select 1 from workflow_run as r'
                || ' where r.id = e.workflow_id and r.tenant = $5 and r.deleted_at is null)' end,
            case when cardinality(types) > 0 then 'e.event_type = any($6)' end,
            case when since is not null then 'e.created_at >= $7' end,
            case when until is not null then 'e.created_at < $8' end
        )
    )
    using after, greatest(0, lim), run, last, tenant, types, since, until;
    return page_of(records, budget);
end $$;

-- The transactions that may have taken numbers which are not seen yet. One that is prepared has no pid.
create or replace function trail_writers() returns table (writer text, pid integer) language sql volatile as $$
    select l.virtualtransaction, l.pid from pg_locks as l
    where l.locktype = 'relation' and l.relation = 'workflow_event'::regclass and l.mode = 'RowExclusiveLock'
        and l.database = (select d.oid from pg_database as d where d.datname = current_database())
        and l.granted and l.pid is distinct from pg_backend_pid()
$$;

-- The number up to which nothing new can come to light. Each look is a statement of its own, after the one before.
create or replace function settled_to(after bigint, now timestamptz) returns bigint language plpgsql volatile as $$
declare
    patience constant interval := '250 milliseconds';
    -- A statement that lasts longer than this between its first look at the clock and its last number has lost its caller.
    margin constant interval := '1 minute';
    too_late constant interval := '10 minutes';
    given bigint := first_fence();
    begun timestamptz := clock_timestamp();
    young text[];
    old interval;
begin
    select array_agg(w.writer) filter (where a.xact_start is null or begun - a.xact_start < patience),
        max(begun - a.xact_start) filter (where begun - a.xact_start >= patience)
    into young, old
    from trail_writers() as w left join pg_stat_activity as a on a.pid = w.pid;
    while young is not null and clock_timestamp() < begun + patience loop
        perform pg_sleep(0.002);
        select array_agg(w.writer) into young from trail_writers() as w where w.writer = any(young);
    end loop;
    if young is not null then
        select greatest(old, max(coalesce(clock_timestamp() - a.xact_start, too_late))) into old
        from trail_writers() as w left join pg_stat_activity as a on a.pid = w.pid where w.writer = any(young);
    end if;
    if old is null then
        return given;
    end if;
    return last_before(after, given, now - least(old + margin, too_late));
end $$;

-- The highest number of a row from before that instant, by halving: times grow with numbers, but for a moment.
create or replace function last_before(after bigint, given bigint, at timestamptz) returns bigint language plpgsql volatile
as $$
declare
    low bigint := after;
    high bigint := given;
    middle bigint;
    found_id bigint;
    found_at timestamptz;
begin
    while low < high loop
        middle := low + (high - low) / 2;
        select e.id, e.created_at into found_id, found_at from workflow_event as e where e.id > middle order by e.id limit 1;
        if found_id is null or found_id > high or found_at >= at then
            high := middle;
        else
            low := found_id;
        end if;
    end loop;
    return low;
end $$;
