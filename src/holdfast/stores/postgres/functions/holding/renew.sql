-- renew: extend leases, each under its fence like an item of a commit, and tell the worker what changed meanwhile.

create or replace function renew(worker text, leases json, lease_seconds double precision) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set lock_timeout = '100ms' as $$
declare
    now timestamptz := clock();
    until timestamptz := now + span(lease_seconds);
    strays json := strays_of(worker, leases);  -- before anything is locked: it reads index entries of old leases
    begun timestamptz := clock_timestamp();
    missed uuid[];
    run uuid;
begin
    if json_array_length(leases) > 0 then
        missed := renew_some(worker, leases, null, now, until);
        -- Rows that others held. They are mostly free again at once, so each is tried once more. All of them together
        -- get a quarter of a second, or the other leases would end during the wait.
        foreach run in array coalesce(missed, '{}') loop
            exit when clock_timestamp() > begun + interval '250 milliseconds';
            begin
                perform 1 from workflow_run as r where r.id = run for no key update;
                perform renew_some(worker, leases, run, now, until);
                missed := array_remove(missed, run);
            exception when lock_not_available then
                null;
            end;
        end loop;
    end if;
    return json_build_object(
        'held', (
            select coalesce(json_agg(case when r.status = 'leased' and r.fence = l.fence and r.lease_until >= now
                then json_build_object(
                    'answer', 'applied', 'pause_asked', r.pause_asked_by is not null,
                    -- Both conditions are needed: a faster commit may have renewed a row that was missed here, or that
                    -- had expired by now.
                    'renewed', r.lease_until >= until and (missed is null or r.id <> all(missed)),
                    'settled', case when l.known is null or n.large then '[]'::json else settled_since(r.id, l.known) end,
                    'more', n.large
                )
                else json_build_object('answer', case when r.status = 'cancelled' then 'cancelled' else 'lost' end)
                end order by l.place), '[]')
            from lease_rows(leases) as l left join workflow_run as r on r.id = any(array[l.run])
            cross join lateral (
                select case when l.known is null or r.id is null then false else has_large_news(r.id, l.known) end as large
            ) as n
        ),
        'strays', strays
    );
end $$;

-- Whether each lease still holds, and whether a pause is asked for. Nothing is written.
create or replace function lease_states(leases json) returns json language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
begin
    return (
        select coalesce(json_agg(case when r.status = 'leased' and r.fence = l.fence and r.lease_until >= now
            then json_build_object('answer', 'applied', 'pause_asked', r.pause_asked_by is not null)
            else json_build_object('answer', case when r.status = 'cancelled' then 'cancelled' else 'lost' end)
            end order by l.place), '[]')
        from lease_rows(leases) as l left join workflow_run as r on r.id = any(array[l.run])
    );
end $$;

-- Runs that are leased to this worker and that it did not name: the answer to its claim was lost.
create or replace function strays_of(worker text, leases json) returns json language plpgsql stable as $$
begin
    return (
        select coalesce(json_agg(json_build_array(r.id, r.fence) order by r.id), '[]') from workflow_run as r
        where r.status = 'leased' and r.leased_by = worker and (r.id, r.fence) not in (
            select l.run, l.fence from json_to_recordset(leases) as l (run uuid, fence bigint)
        )
    );
end $$;

-- Declared to be few rows, as in commit, so that the planner starts with them.
create or replace function lease_rows(leases json) returns table (
    run uuid, fence bigint, known integer, started_at bigint, heartbeat boolean, progress text,
    survived boolean, place bigint
) language plpgsql volatile rows 1 as $$
begin
    return query select * from rows from (json_to_recordset(leases) as (
        run uuid, fence bigint, known integer, started_at bigint, heartbeat boolean, progress text,
        survived boolean
    )) with ordinality as l (run, fence, known, started_at, heartbeat, progress, survived, place);
end $$;

-- Renew the leases whose rows can be locked at once, or the single one that is named. Returns those that could not be
-- locked.
create or replace function renew_some(
    worker text, leases json, only_run uuid, now timestamptz, until timestamptz
) returns uuid[] language plpgsql as $$
declare
    renewed uuid[];
    missed uuid[];
begin
    with held as materialized (
        select r.id, l.*, l.started_at is not null and r.started_fence <> r.fence as begins,
            coalesce(l.survived, false) and r.crashes > 0 and r.survived = 0 as forgiven
        from lease_rows(leases) as l
        join workflow_run as r on r.id = any(array[l.run])
        where (only_run is null or l.run = only_run)
            and r.status || '' = 'leased' and r.fence = l.fence and r.lease_until >= now
        for no key update of r skip locked
    ), renewed as (
        update workflow_run as r
        set lease_until = until, progress = coalesce(h.progress::json, r.progress),
            started_fence = case when h.begins then r.fence else r.started_fence end,
            started_at = case when h.begins then coalesce(r.started_at, moment(h.started_at)) else r.started_at end,
            -- Only once since the last progress: otherwise a run that kills its worker later than that would never
            -- fail.
            attempt = case when h.forgiven then greatest(1, r.attempt - r.crashes) else r.attempt end,
            crashes = case when h.forgiven then 0 else r.crashes end, survived = case when h.forgiven then 1 else r.survived end,
            rev = r.rev + 1
        from held as h where r.id = any(array[h.id])
    ), trail_rows as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select t.id, t.what, t.data::json, now, false
        from (
            select h.id, 'started' as what, '{"at":' || h.started_at || '}' as data, 0 as rank
            from held as h where h.begins
            union all
            select h.id, 'heartbeat', '{"worker":' || to_json(worker)::text || '}', 1
            from held as h where h.heartbeat
        ) as t order by t.id, t.rank
    )
    select array_agg(h.id) into renewed from held as h;
    if coalesce(cardinality(renewed), 0) < json_array_length(leases) then
        select array_agg(r.id) into missed
        from lease_rows(leases) as l join workflow_run as r on r.id = any(array[l.run])
        where r.status || '' = 'leased' and r.fence = l.fence and r.lease_until >= now
            and (renewed is null or r.id <> all(renewed));
    end if;
    return missed;
end $$;
