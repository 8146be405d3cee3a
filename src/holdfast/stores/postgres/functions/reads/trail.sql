-- The trail: what happened, oldest first.
--
-- Numbers are given when rows are written, but rows become visible when their transaction commits. A row with a lower
-- number may become visible after a higher number was returned, and a reader that follows by number would never see it.
-- Within one run this cannot happen, because a writer holds the row of the run. Over all runs only those rows are
-- returned below which nothing new can appear. Each transaction that has taken a number holds a RowExclusiveLock on the
-- table until it ends, which pg_locks shows (every INSERT takes it; it blocks no other INSERT). When all transactions
-- that had this lock a moment ago have ended, every number that was given by then is final. Transactions of this
-- library last milliseconds, and are waited for. A longer one is a caller's own transaction. What happened after it
-- began is returned when it has ended, or after ten minutes; a transaction that commits even later is seen in the trail
-- of its runs, and by a reader that starts again. Transactions that have not written here hide nothing, however long
-- they last. (xmin would not do: a row of an older transaction may have the higher number, and the oldest xid of a
-- server may belong to another database.)

create or replace function trail(filter json, after bigint, lim integer, budget bigint default 8388608) returns json
language plpgsql volatile
set search_path from current set cursor_tuple_fraction = 1 set jit = off as $$
declare
    run uuid := (filter ->> 'run')::uuid;
    last bigint;
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
    return page_of(trail_records(filter, after, last, lim), budget);
end $$;

-- The rows that a filter selects, up to a number unless it is null.
create or replace function trail_records(filter json, after bigint, last bigint, lim bigint) returns refcursor
language plpgsql volatile as $$
declare
    run uuid := (filter ->> 'run')::uuid;
    tenant text := filter ->> 'tenant';
    types text[] := texts(filter -> 'types');
    since timestamptz := moment((filter ->> 'since')::bigint);
    until timestamptz := moment((filter ->> 'until')::bigint);
    records refcursor;
begin
    open records no scroll for execute format(
        $sql$
            select entry_record(e) from (
                select e.* from workflow_event as e where e.id > $1 and %s order by e.id limit $2
            ) as e
        $sql$,
        concat_ws(
            ' and ',
            case when run is not null then 'e.workflow_id = $3' else 'e.id <= $4' end,
            -- Remaining rows of a run that a purge has begun to remove are hidden.
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
    return records;
end $$;

-- The transactions that may have taken numbers that are not visible yet. A prepared transaction has no pid.
create or replace function trail_writers() returns table (writer text, pid integer) language sql volatile as $$
    select l.virtualtransaction, l.pid from pg_locks as l
    where l.locktype = 'relation' and l.relation = 'workflow_event'::regclass and l.mode = 'RowExclusiveLock'
        and l.database = (select d.oid from pg_database as d where d.datname = current_database())
        and l.granted and l.pid is distinct from pg_backend_pid()
$$;

-- The number up to which nothing new can appear. Each look is a statement of its own, after the one before.
create or replace function settled_to(after bigint, now timestamptz) returns bigint language plpgsql volatile as $$
declare
    patience constant interval := '250 milliseconds';
    -- A statement that takes longer than this between its first look at the clock and its last number has lost its
    -- caller.
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

-- The highest number of a row from before that instant, by binary search: times grow with numbers, except for short
-- moments.
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
