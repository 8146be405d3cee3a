-- counts, rates and recount. Each answer is the kept counts and the changes that are not folded yet, in one snapshot:
-- so nobody sees whether something was folded.

-- COUNTED_TYPES_MAX, RATES_MAX, SCALE_MAX and DUE_COUNTED of the contract.
create or replace function counted_types_max() returns integer language sql immutable as 'select 1000';
create or replace function rates_max() returns integer language sql immutable as 'select 10000';
create or replace function scale_max() returns integer language sql immutable as 'select 1000';
create or replace function due_counted() returns integer language sql immutable as 'select 10000';

-- The tenant under which counts are kept. No tenant has the name '', so it sees nothing.
create or replace function kept_for(tenant text) returns text language sql immutable as $$
    select case when tenant is null then '' when tenant <> '' then tenant end
$$;

-- Runs by type and status, and happenings by type, of a tenant or of all. If there are too many types, those with the
-- most runs are named, then those to which the most has happened; the rest is under the type ''.
create or replace function counts(tenant text) returns json language plpgsql stable
set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    past bigint := folded_past();
    whose text := kept_for(tenant);
begin
    return (
        with changes as (
            select x.type, x.from_status, x.to_status, x.what, x.number from workflow_count_change as x
            where x.seq > past and (counts.tenant is null or x.tenant = counts.tenant)
        ), runs as (
            select n.type, n.status as name, sum(n.number) as number from (
                select c.type, c.status, c.number from workflow_count as c where c.tenant = whose
                union all
                select x.type, s.status, s.sign * x.number
                from changes as x cross join lateral (values (x.from_status, -1), (x.to_status, 1)) as s (status, sign)
                where s.status is not null
            ) as n
            group by n.type, n.status having sum(n.number) <> 0
        ), happenings as (
            select n.type, n.what as name, sum(n.number) as number from (
                select r.type, r.what, r.number from workflow_rate as r
                where r.tenant = whose and r.minute = '-infinity'
                union all
                select x.type, x.what, x.number from changes as x where x.what is not null
            ) as n
            group by n.type, n.what
        ), every as (
            select 'runs' as part, r.* from runs as r union all select 'happenings', h.* from happenings as h
        ), named as (
            select b.type, case when row_number() over (order by
                coalesce(sum(b.number) filter (where b.part = 'runs'), 0) desc, sum(b.number) desc, b.type
            ) <= counted_types_max() then b.type else '' end as name
            from every as b group by b.type
        ), shown as (
            select b.part, n.name as type, json_object_agg(b.name, b.number order by b.name) as numbers
            from (
                select b.part, n.name as type, b.name, sum(b.number) as number
                from every as b join named as n on n.type = b.type group by b.part, n.name, b.name
            ) as b cross join lateral (values (b.type)) as n (name)
            group by b.part, n.name
        )
        select json_build_object(
            'now', us(clock()),
            'by_type', coalesce(json_object_agg(s.type, s.numbers order by s.type) filter (where s.part = 'runs'), '{}'),
            'totals',
                coalesce(json_object_agg(s.type, s.numbers order by s.type) filter (where s.part = 'happenings'), '{}'),
            'more', coalesce(bool_or(s.type = ''), false)
        )
        from shown as s
    );
end $$;

-- The number of all runs by status, also of those that have none.
create or replace function count_by_status() returns json language plpgsql stable as $$
declare
    past bigint := folded_past();
begin
    return (
        select json_object_agg(n.status, n.number) from (
            select n.status, sum(n.number) as number from (
                select s.status, 0 as number
                from unnest(array['pending', 'leased', 'waiting', 'paused', 'succeeded', 'failed', 'cancelled']) as s (status)
                union all
                select c.status, c.number from workflow_count as c where c.tenant = ''
                union all
                select s.status, s.sign * x.number from workflow_count_change as x
                cross join lateral (values (x.from_status, -1), (x.to_status, 1)) as s (status, sign)
                where x.seq > past and s.status is not null
            ) as n
            group by n.status
        ) as n
    );
end $$;

-- Happenings per minute, from the minute of `since` to that of `until`: the first ones.
create or replace function rates(tenant text, since bigint, until bigint, lim integer) returns json language plpgsql stable
set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    past bigint := folded_past();
    whose text := kept_for(tenant);
    first timestamptz := greatest(minute_of(moment(since)), '0001-01-01 00:00:00+00');
    last timestamptz := coalesce(moment(until), 'infinity');
    most integer := greatest(0, least(lim, rates_max()));
begin
    return coalesce((
        select json_agg(json_build_object('minute', us(n.minute), 'type', n.type, 'what', n.what, 'number', n.number)
                        order by n.minute, n.type, n.what)
        from (
            select n.minute, n.type, n.what, sum(n.number) as number from (
                (
                    select r.minute, r.type, r.what, r.number from workflow_rate as r
                    where r.tenant = whose and r.minute >= first and r.minute <= last
                    order by r.minute, r.type, r.what limit most
                ) union all
                select minute_of(x.at), x.type, x.what, x.number from workflow_count_change as x
                where x.seq > past and x.what is not null and x.at >= first and minute_of(x.at) <= last
                    and (rates.tenant is null or x.tenant = rates.tenant)
            ) as n
            group by n.minute, n.type, n.what order by n.minute, n.type, n.what limit most
        ) as n
    ), '[]');
end $$;

-- Compare the kept counts with the rows. A repair adds the differences as changes: both were read in one snapshot, so
-- what others change meanwhile stays right. Differences of the row of all tenants that are not the sum of those of the
-- tenants are named under tenant ''.
create or replace function recount(repair boolean) returns json language plpgsql
set search_path from current set jit = off as $$
declare
    now timestamptz := clock();
    found json;
begin
    if repair then
        perform refuse_old_snapshot();
        -- One repair at a time, or both would add the same. The transaction gets its id before it takes numbers.
        perform pg_advisory_xact_lock(1752132459, hashtext(current_schema())), pg_current_xact_id();
        -- Numbers that begin anew (a restored table, a replica that became the server) would never be read.
        update workflow_count_fold as f set past = 0, next = 0
        where f.past > (select s.last_value from workflow_count_change_seq_seq as s);
    end if;
    with real as (
        select r.tenant, r.type, r.status, count(*) as number from workflow_run as r
        where r.deleted_at is null group by r.tenant, r.type, r.status
    ), changed as (
        select x.tenant, x.type, s.status, s.sign * x.number as number from workflow_count_change as x
        cross join lateral (values (x.from_status, -1), (x.to_status, 1)) as s (status, sign)
        where x.seq > (select folded_past()) and s.status is not null
    ), kept as (
        select n.tenant, n.type, n.status, sum(n.number) as number from (
            select c.tenant, c.type, c.status, c.number from workflow_count as c
            union all select x.tenant, x.type, x.status, x.number from changed as x where x.tenant <> ''
            union all select '', x.type, x.status, x.number from changed as x
        ) as n
        group by n.tenant, n.type, n.status
    ), compared as (
        select d.tenant, d.type, d.status, coalesce(sum(d.kept), 0) as kept, coalesce(sum(d.real), 0) as real from (
            select k.tenant, k.type, k.status, k.number as kept, 0 as real from kept as k
            union all select r.tenant, r.type, r.status, 0, r.number from real as r
            union all select '', r.type, r.status, 0, r.number from real as r
            union all select '', k.type, k.status, 0, 0 from kept as k  -- also where only a tenant has a count
        ) as d
        group by d.tenant, d.type, d.status
    ), mended as (  -- what each tenant lacks, and what the row of all lacks beside that
        select c.tenant, c.type, c.status, c.kept, c.real, c.real - c.kept - case when c.tenant = '' then coalesce((
            select sum(o.real - o.kept) from compared as o
            where o.tenant <> '' and o.real <> o.kept and o.type = c.type and o.status = c.status
        ), 0) else 0 end as lacks
        from compared as c
    ), written as (
        insert into workflow_count_change (tenant, type, from_status, to_status, what, number, at)
        select m.tenant, m.type, null, m.status, null, m.lacks, now from mended as m where repair and m.lacks <> 0
    )
    select coalesce(json_agg(json_build_object(
        'tenant', m.tenant, 'type', m.type, 'status', m.status, 'kept', m.kept, 'real', m.real
    ) order by m.tenant, m.type, m.status), '[]')
    into found from mended as m where m.lacks <> 0 and m.kept <> m.real;
    return found;
end $$;
