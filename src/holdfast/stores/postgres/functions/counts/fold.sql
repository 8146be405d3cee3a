-- Folding: changes of the counts are added to the kept counts and removed, in one statement. It takes the changes that
-- it sees, and those alone; what another transaction commits later is taken by a later fold. One session folds at a
-- time, and no other verb waits for it: only folds write the kept counts.

-- FOLD_SECONDS and RATE_SECONDS of the contract.
create or replace function fold_age() returns interval language sql immutable as $$select interval '10 seconds'$$;
create or replace function rate_age() returns interval language sql immutable as $$select interval '172800 seconds'$$;

-- All changes up to this number are folded and gone.
create or replace function folded_past() returns bigint language plpgsql stable as $$
begin
    return coalesce((select f.past from workflow_count_fold as f where f.id = 1), 0);
end $$;

-- The time when the oldest change is due to be folded.
create or replace function next_fold() returns timestamptz language plpgsql stable as $$
begin
    return (
        select c.at + fold_age() from workflow_count_change as c
        where c.seq > coalesce((select f.past from workflow_count_fold as f where f.id = 1), 0) order by c.seq limit 1
    );
end $$;

-- Fold at most `lim` changes, when the oldest is due. It takes the younger ones too, so that the next fold is due only
-- after a while. Returns how many.
create or replace function fold_counts(lim integer) returns integer
language plpgsql set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    most bigint := greatest(0, lim);
    given bigint;
    folded integer;
    ends_before xid8;
    mark workflow_count_fold;
    gone record;
begin
    if coalesce(next_fold() > now, true) or not pg_try_advisory_xact_lock(1752132458, hashtext(current_schema())) then
        return 0;
    end if;
    perform refuse_old_snapshot();
    select * into mark from workflow_count_fold as f where f.id = 1;
    -- A transaction gets its id before it takes a number of a change. So whoever has taken a number up to `given` has a
    -- lower id than this transaction, which has none yet.
    if pg_current_xact_id_if_assigned() is null then
        select case when s.is_called then s.last_value else 0 end into given from workflow_count_change_seq_seq as s;
    end if;
    ends_before := pg_snapshot_xmin(pg_current_snapshot());
    with taken as materialized (
        delete from workflow_count_change as c
        where c.ctid = any(array(
            select t.ctid from workflow_count_change as t where t.seq > coalesce(mark.past, 0) order by t.seq limit most
        ))
        returning c.tenant, c.type, c.from_status, c.to_status, c.what, c.number, c.at
    ), counted as (
        insert into workflow_count as k (tenant, type, status, number)
        select coalesce(d.tenant, ''), d.type, d.status, sum(d.sign * d.number)
        from (
            select t.tenant, t.type, s.status, s.sign, t.number from taken as t
            cross join lateral (values (t.from_status, -1), (t.to_status, 1)) as s (status, sign)
            where s.status is not null
        ) as d
        group by grouping sets ((d.tenant, d.type, d.status), (d.type, d.status))
        having sum(d.sign * d.number) <> 0 and d.tenant is distinct from ''
        on conflict (tenant, type, status) do update set number = k.number + excluded.number
        returning k.tenant, k.type, k.status, k.number
    ), rated as (
        insert into workflow_rate as k (tenant, minute, type, what, number)
        select coalesce(t.tenant, ''), coalesce(t.minute, '-infinity'), t.type, t.what, sum(t.number)
        from (select minute_of(x.at) as minute, x.* from taken as x where x.what is not null) as t
        group by grouping sets ((t.tenant, t.minute, t.type, t.what), (t.tenant, t.type, t.what),
                                (t.minute, t.type, t.what), (t.type, t.what))
        on conflict (tenant, minute, type, what) do update set number = k.number + excluded.number
    )
    select (select count(*) from taken) as changes, array_agg(c.tenant) as tenants, array_agg(c.type) as types,
        array_agg(c.status) as statuses
    into gone from counted as c where c.number = 0;
    folded := gone.changes;
    delete from workflow_count as k using unnest(gone.tenants, gone.types, gone.statuses) as z (tenant, type, status)
    where k.tenant = z.tenant and k.type = z.type and k.status = z.status and k.number = 0;
    -- Old minutes are forgotten, as many as a fold can add.
    delete from workflow_rate as r where r.ctid = any(array(
        select t.ctid from workflow_rate as t
        where t.minute > '-infinity' and t.minute <= now - rate_age() order by t.minute limit 2 * most
    ));
    if folded < most and given is not null then
        -- All changes that were visible are gone. So are those up to `next`, if their transactions had ended before.
        if mark.id is null then
            insert into workflow_count_fold (id, past, next, next_xid) values (1, 0, given, pg_current_xact_id());
        elsif ends_before >= mark.next_xid then
            update workflow_count_fold as f set past = f.next, next = given, next_xid = pg_current_xact_id() where f.id = 1;
        elsif mark.next_xid > pg_current_xact_id() then  -- of another server, by a dump
            update workflow_count_fold as f set next = f.past, next_xid = pg_current_xact_id() where f.id = 1;
        end if;
    end if;
    return folded;
end $$;

create or replace function minute_of(at timestamptz) returns timestamptz language sql immutable as $$
    select timestamptz '1970-01-01 00:00:00+00' + floor(extract(epoch from at) / 60) * interval '1 minute'
$$;
