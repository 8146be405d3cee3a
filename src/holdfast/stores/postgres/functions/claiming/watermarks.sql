-- Watermarks: where the pending runs of a queue begin. While some transaction stays open, vacuum cannot remove the
-- index entries of runs that were claimed since. Every claim would read all of them: those of a minute cost a tenth of
-- a second. So a claim that read many dead entries stores, for each priority of a type, the first run that is still
-- pending. The next claims of its session begin there. A run that becomes pending before a watermark is seen when the
-- watermarks expire: they last twenty times as long as the claim took.
-- A watermark is one second before that first run, because a start may commit a moment later than its time.

create or replace function watermark_margin() returns bigint language sql immutable as 'select 1000000::bigint';

-- The watermarks of this session, by type and priority, in microseconds; null: none are valid.
create or replace function watermarks(tenants text[]) returns jsonb language plpgsql stable as $$
declare
    said text := current_setting('holdfast.watermarks', true);
begin
    if said is null or said = '' or tenants is not null or said::jsonb ->> 'schema' <> current_schema()
        or (said::jsonb ->> 'until')::bigint < us(clock_timestamp())
    then
        return null;
    end if;
    return said::jsonb -> 'types';
end $$;

-- The number of index entries of the queue that this session has read that led to no row any more. Only differences of this
-- number have a meaning.
create or replace function dead_entries_read() returns bigint language plpgsql volatile as $$
begin
    return pg_stat_get_xact_tuples_returned('idx_workflow_run_claim'::regclass)
        - pg_stat_get_xact_tuples_fetched('idx_workflow_run_claim'::regclass);
end $$;

-- The first pending run of each priority, due or not, from the watermarks on.
create or replace function first_pending_from(types text[], watermarks jsonb)
returns table (type text, priority integer, run_at timestamptz) language plpgsql stable rows 10 as $$
#variable_conflict use_column
declare
    one text;
    after bigint;
    watermark integer;
begin
    foreach one in array array(select distinct unnest(types)) loop
        after := -2147483649;
        loop
            select min(m.priority::integer) into watermark from jsonb_object_keys(watermarks -> one) as m (priority)
            where m.priority::integer > after;
            select r.type, r.priority, r.run_at into type, priority, run_at from workflow_run as r
            where r.type = one and r.priority > after and r.priority < coalesce(watermark, 2147483648)
                and r.status = 'pending' and r.deleted_at is null
            order by r.priority, r.run_at, r.id limit 1;
            if not found and watermark is not null then
                select r.type, r.priority, r.run_at into type, priority, run_at from workflow_run as r
                where r.type = one and r.priority = watermark and r.run_at >= moment((watermarks -> one ->> watermark::text)::bigint)
                    and r.status = 'pending' and r.deleted_at is null
                order by r.run_at, r.id limit 1;
            end if;
            exit when priority is null and watermark is null;
            if priority is not null then
                return next;
            end if;
            after := coalesce(priority, watermark);
        end loop;
    end loop;
end $$;

-- The same as `candidates`, from the watermarks on.
create or replace function candidates_from(types text[], watermarks jsonb, now timestamptz, size integer)
returns table (id uuid, crashes integer) language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select due.id, due.crashes
    from first_pending_from(types, watermarks) as queue cross join lateral (
        select r.id, r.run_at, r.crashes from workflow_run as r
        where r.type = queue.type and r.priority = queue.priority and r.run_at >= queue.run_at and r.run_at <= now
            and r.status = 'pending' and r.deleted_at is null
        order by r.run_at, r.id limit size
    ) as due
    order by queue.priority, due.run_at, due.id limit size;
end $$;

-- Store watermarks after a claim that began at `begun`. If it read many dead entries, its types get watermarks beside
-- those that are valid. If a claim without watermarks read few, all watermarks are removed.
create or replace function keep_watermarks(
    types text[], watermarks jsonb, walked_far boolean, begun timestamptz, now timestamptz
) returns void language plpgsql as $$
declare
    at bigint := us(clock_timestamp());
    until bigint := at + least(15000000, greatest(1000000, 20 * (at - us(begun))));
begin
    if watermarks is not null then
        until := (current_setting('holdfast.watermarks')::jsonb ->> 'until')::bigint;
    end if;
    perform set_config('holdfast.watermarks', case when walked_far then json_build_object(
        'schema', current_schema(), 'until', until, 'types', coalesce(watermarks, '{}') || (
            select jsonb_object_agg(t.type, watermarks_of_type(t.type, watermarks, now)) from (select distinct unnest(types) as type) as t
        )
    )::text else '' end, false);
end $$;

-- The watermarks of one type. Where nothing is pending any more, an existing watermark moves up to now.
create or replace function watermarks_of_type(of_type text, watermarks jsonb, now timestamptz) returns jsonb language plpgsql stable as $$
begin
    return (
        select coalesce(jsonb_object_agg(m.priority, m.at - watermark_margin()), '{}') from (
            select coalesce(old.priority, l.priority::text) as priority, us(least(l.run_at, now)) as at
            from jsonb_object_keys(watermarks -> of_type) as old (priority)
            full join first_pending_from(array[of_type], watermarks) as l on l.priority::text = old.priority
        ) as m
    );
end $$;
