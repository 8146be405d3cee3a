-- The triggers that write changes of the counts: one mechanism for verbs, user SQL, caller transactions and purges.
-- They fire once for a statement and see all its rows. A trigger for each row would write three changes for a run that
-- just succeeds, however many runs succeed together. A statement with one row has a shorter way: to group costs three
-- times as much.
--
-- They run in the session of any role, with the rights of the schema's owner. Each status of each run comes by here, and
-- a search_path of their own would cost as much as all the rest. So these functions, and no others, have the
-- search_path of the caller: they declare no variables, and name the schema of every table, function, type and operator
-- in their bodies. `in`, `=` and `is distinct from` are operators too. Names of transition tables come before all
-- others.
--
-- A run that is imported is inserted with rev 2: it counts under its status, but was not started here.

do $do$
begin
    execute replace($body$
create or replace function count_added() returns trigger language plpgsql security definer as $$
begin
    if tg_relid operator(pg_catalog.<>) '@.workflow_run'::pg_catalog.regclass then
        raise exception using errcode = 'HF007', message = 'this trigger is for workflow_run alone',
            detail = '{"error": "UsageError", "data": {}}';
    elsif (select pg_catalog.count(*) from new_rows) operator(pg_catalog.=) 1 then
        insert into @.workflow_count_change (tenant, type, from_status, to_status, what, number, at)
        select n.tenant, n.type, null, case when n.deleted_at is null then n.status end,
            case when n.rev operator(pg_catalog.<) 2 then 'started' end, 1, @.clock()
        from new_rows as n;
    else
        insert into @.workflow_count_change (tenant, type, from_status, to_status, what, number, at)
        select n.tenant, n.type, null, case when n.deleted_at is null then n.status end,
            case when n.rev operator(pg_catalog.<) 2 then 'started' end, pg_catalog.count(*), @.clock()
        from new_rows as n group by 1, 2, 4, 5;
    end if;
    return null;
end $$;

-- A deleted run counts under no status, but it can end. A run that was final and becomes so in another way, or is final
-- already when it is restored, has not ended. Nor has one that leaves for another store: nobody has cancelled it.
create or replace function count_moved() returns trigger language plpgsql security definer as $$
begin
    if tg_relid operator(pg_catalog.<>) '@.workflow_run'::pg_catalog.regclass then
        raise exception using errcode = 'HF007', message = 'this trigger is for workflow_run alone',
            detail = '{"error": "UsageError", "data": {}}';
    elsif (select pg_catalog.count(*) from new_rows) operator(pg_catalog.=) 1 then
        insert into @.workflow_count_change (tenant, type, from_status, to_status, what, number, at)
        select n.tenant, n.type, case when o.deleted_at is null then o.status end,
            case when n.deleted_at is null then n.status end,
            case when o.finished_at is null and n.finished_at is not null
                and coalesce(n.pause_asked_by, '') operator(pg_catalog.<>) 'move' then n.status end, 1, @.clock()
        from old_rows as o cross join new_rows as n
        where case when o.deleted_at is null then o.status else '' end operator(pg_catalog.<>)
                case when n.deleted_at is null then n.status else '' end
            or o.finished_at is null and n.finished_at is not null;
    else
        -- The two rows of a run are grouped, not joined: verbs forbid hash joins, and the plan stays when the next
        -- statement has a thousand rows.
        insert into @.workflow_count_change (tenant, type, from_status, to_status, what, number, at)
        select m.tenant, m.type, m.from_status, m.to_status, m.what, pg_catalog.count(*), @.clock()
        from (
            select b.tenant, b.type, pg_catalog.min(b.from_status) as from_status,
                pg_catalog.min(b.to_status) as to_status,
                case when pg_catalog.bool_and(b.was_open) then pg_catalog.min(b.ended) end as what
            from (
                select o.id, o.tenant, o.type, case when o.deleted_at is null then o.status end as from_status,
                    null as to_status, o.finished_at is null as was_open, null as ended
                from old_rows as o
                union all
                select n.id, n.tenant, n.type, null, case when n.deleted_at is null then n.status end, true,
                    case when n.finished_at is not null
                        and coalesce(n.pause_asked_by, '') operator(pg_catalog.<>) 'move' then n.status end
                from new_rows as n
            ) as b
            group by b.id, b.tenant, b.type
        ) as m
        where coalesce(m.from_status, '') operator(pg_catalog.<>) coalesce(m.to_status, '') or m.what is not null
        group by m.tenant, m.type, m.from_status, m.to_status, m.what;
    end if;
    return null;
end $$;
    $body$, '@', quote_ident(current_schema()));
end $do$;

-- The end of a run is counted when it ends, not when it is removed.
create or replace function count_removed() returns trigger language plpgsql set search_path from current as $$
begin
    perform refuse_other_table(tg_relid, 'workflow_run'::regclass);
    insert into workflow_count_change (tenant, type, from_status, to_status, what, number, at)
    select o.tenant, o.type, o.status, null, null, count(*), clock()
    from old_rows as o where o.deleted_at is null group by 1, 2, 3;
    return null;
end $$;

-- All runs are gone at once. Nobody else writes meanwhile: a truncate has the table for itself.
create or replace function count_truncated() returns trigger language plpgsql set search_path from current as $$
begin
    perform refuse_other_table(tg_relid, 'workflow_run'::regclass);
    insert into workflow_count_change (tenant, type, from_status, to_status, what, number, at)
    select c.tenant, c.type, c.status, null, null, c.number, clock() from workflow_counts as c;
    return null;
end $$;

-- Retries and ends of leases leave no mark in the status of a run: they are counted with their rows of the trail.
create or replace function count_told() returns trigger language plpgsql set search_path from current as $$
begin
    perform refuse_other_table(tg_relid, 'workflow_event'::regclass);
    insert into workflow_count_change (tenant, type, from_status, to_status, what, number, at)
    select r.tenant, r.type, null, null, case new.event_type when 'retried' then 'retried' else 'expired' end, 1, clock()
    from workflow_run as r where r.id = any(array[new.workflow_id]);
    return null;
end $$;

-- The present counts of each tenant, for people and programs that read by SQL.
create or replace view workflow_counts as
select n.tenant, n.type, n.status, sum(n.number)::bigint as number from (
    select c.tenant, c.type, c.status, c.number from workflow_count as c where c.tenant <> ''
    union all
    select x.tenant, x.type, s.status, s.sign * x.number
    from workflow_count_change as x
    cross join lateral (values (x.from_status, -1), (x.to_status, 1)) as s (status, sign)
    where x.seq > coalesce((select f.past from workflow_count_fold as f), 0) and x.tenant <> '' and s.status is not null
) as n
group by n.tenant, n.type, n.status having sum(n.number) <> 0;
