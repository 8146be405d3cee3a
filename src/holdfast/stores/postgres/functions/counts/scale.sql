-- scale: due and leased runs by type and tenant. It steps from one type and tenant to the next in the index, and there
-- from one priority to the next, and counts the due runs of each, up to a bound. So runs that are not due cost one
-- lookup for each type, tenant and priority, however many they are, and ended runs cost nothing.

-- The types and tenants that have due runs, in order; at most `lim`. `due`: at most one more than due_counted().
-- `cut`: on the last row, when the look ended early.
create or replace function due_runs(tenant text, lim integer, now timestamptz)
returns table (type text, of_tenant text, due bigint, oldest timestamptz, cut boolean) language plpgsql stable as $$
#variable_conflict use_column
declare
    looked integer := 0;
    found integer := 0;
    level integer;
    first_at timestamptz;
    next record;
begin
    type := '';
    of_tenant := coalesce(due_runs.tenant, '');
    cut := false;
    while found < lim loop
        if due_runs.tenant is null then
            select r.type, r.tenant into next from workflow_run as r
            where (r.type, r.tenant) > (due_runs.type, due_runs.of_tenant) and r.status = 'pending' and r.deleted_at is null
            order by r.type, r.tenant, r.limit_key, r.priority, r.run_at, r.id limit 1;
        else
            select r.type, r.tenant into next from workflow_run as r
            where (r.tenant, r.type) > (due_runs.tenant, due_runs.type) and r.status = 'pending' and r.deleted_at is null
            order by r.tenant, r.type, r.priority, r.run_at, r.id limit 1;
        end if;
        exit when next.type is null or due_runs.tenant is not null and next.tenant <> due_runs.tenant;
        type := next.type;
        of_tenant := next.tenant;
        due := 0;
        oldest := null;
        level := -2147483648;
        loop
            select r.tenant, r.type, r.priority, r.run_at into next from workflow_run as r
            where (r.tenant, r.type, r.priority) > (due_runs.of_tenant, due_runs.type, level)
                and r.status = 'pending' and r.deleted_at is null
            order by r.tenant, r.type, r.priority, r.run_at, r.id limit 1;
            looked := looked + 1;
            exit when next.type is distinct from type or next.tenant <> of_tenant;
            level := next.priority;
            if next.run_at <= now then
                oldest := least(oldest, next.run_at);
                due := due + (
                    select count(*) from (
                        select 1 from workflow_run as r
                        where r.tenant = due_runs.of_tenant and r.type = due_runs.type and r.priority = level
                            and r.run_at <= now and r.status = 'pending' and r.deleted_at is null
                        order by r.run_at, r.id limit due_counted() + 1 - due
                    ) as w
                );
            end if;
        end loop;
        if due > 0 then
            found := found + 1;
            return next;
        end if;
        if looked >= 20000 then  -- very many queues that have nothing due
            due := 0;
            cut := true;
            return next;
            return;
        end if;
    end loop;
end $$;

create or replace function scale(tenant text, lim integer) returns json language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off as $$
declare
    now timestamptz := clock();
    bound integer := greatest(0, least(lim, scale_max()));
    most integer := due_counted();
begin
    return (
        with due as materialized (
            select d.* from due_runs(scale.tenant, bound + 1, now) as d
        ), leased as (
            select r.type, r.tenant, count(*) as number from workflow_run as r
            where r.status = 'leased' and (scale.tenant is null or r.tenant = scale.tenant)
            group by r.type, r.tenant
        ), every as (
            select b.type, b.tenant, sum(b.due)::bigint as due, min(b.oldest) as oldest, sum(b.leased)::bigint as leased,
                row_number() over (order by b.type, b.tenant) as place
            from (
                select d.type, d.of_tenant as tenant, d.due, d.oldest, 0 as leased from due as d where d.due > 0
                union all select l.type, l.tenant, 0, null, l.number from leased as l
            ) as b
            group by b.type, b.tenant
        )
        select json_build_object(
            'now', us(now),
            'items', coalesce(json_agg(json_build_object(
                'type', b.type, 'tenant', b.tenant, 'due', least(b.due, most), 'more', b.due > most,
                'oldest_due_at', us(b.oldest), 'leased', b.leased
            ) order by b.place) filter (where b.place <= bound), '[]'),
            'more', count(*) > bound or exists (select 1 from due as d where d.cut)
        )
        from every as b
    );
end $$;
