-- Where the living begin. While somebody holds a transaction open, what was claimed since cannot be cleaned up, and every
-- claim would walk over all of it: a minute's work is a tenth of a second. A claim that had to walk far therefore marks, for
-- each priority of a type, the first run that is still pending, and the next ones of its session begin there. A run that
-- comes to be pending before a mark is seen when the marks have lapsed: they last twenty times as long as the walk took.
-- A second before that first run, for whoever starts some commits a moment later.

create or replace function mark_margin() returns bigint language sql immutable as 'select 1000000::bigint';

-- Those of this session, by type and priority, in microseconds; null: none that hold.
create or replace function marks(tenants text[]) returns jsonb language plpgsql stable as $$
declare
    said text := current_setting('holdfast.marks', true);
begin
    if said is null or said = '' or tenants is not null or said::jsonb ->> 'schema' <> current_schema()
        or (said::jsonb ->> 'until')::bigint < us(clock_timestamp())
    then
        return null;
    end if;
    return said::jsonb -> 'types';
end $$;

-- How many entries of the queue this session has met that led to nothing any more; counted from some time on.
create or replace function walked_over() returns bigint language plpgsql volatile as $$
begin
    return pg_stat_get_xact_tuples_returned('idx_workflow_run_claim'::regclass)
        - pg_stat_get_xact_tuples_fetched('idx_workflow_run_claim'::regclass);
end $$;

-- The first pending run of each priority, due or not, from the marks on.
create or replace function lanes_past(types text[], marks jsonb)
returns table (type text, priority integer, run_at timestamptz) language plpgsql stable rows 10 as $$
#variable_conflict use_column
declare
    one text;
    after bigint;
    mark integer;
begin
    foreach one in array array(select distinct unnest(types)) loop
        after := -2147483649;
        loop
            select min(m.priority::integer) into mark from jsonb_object_keys(marks -> one) as m (priority)
            where m.priority::integer > after;
            select r.type, r.priority, r.run_at into type, priority, run_at from workflow_run as r
            where r.type = one and r.priority > after and r.priority < coalesce(mark, 2147483648)
                and r.status = 'pending' and r.deleted_at is null
            order by r.priority, r.run_at, r.id limit 1;
            if not found and mark is not null then
                select r.type, r.priority, r.run_at into type, priority, run_at from workflow_run as r
                where r.type = one and r.priority = mark and r.run_at >= moment((marks -> one ->> mark::text)::bigint)
                    and r.status = 'pending' and r.deleted_at is null
                order by r.run_at, r.id limit 1;
            end if;
            exit when priority is null and mark is null;
            if priority is not null then
                return next;
            end if;
            after := coalesce(priority, mark);
        end loop;
    end loop;
end $$;

-- As `candidates`, from the marks on.
create or replace function candidates_past(types text[], marks jsonb, now timestamptz, size integer)
returns table (id uuid, crashes integer) language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select due.id, due.crashes
    from lanes_past(types, marks) as lane cross join lateral (
        select r.id, r.run_at, r.crashes from workflow_run as r
        where r.type = lane.type and r.priority = lane.priority and r.run_at >= lane.run_at and r.run_at <= now
            and r.status = 'pending' and r.deleted_at is null
        order by r.run_at, r.id limit size
    ) as due
    order by lane.priority, due.run_at, due.id limit size;
end $$;

-- After a claim that began then: marks for its types, beside those that hold, if it has walked over many; none, if a whole
-- walk was short.
create or replace function keep_marks(
    types text[], marks jsonb, walked_far boolean, begun timestamptz, now timestamptz
) returns void language plpgsql as $$
declare
    at bigint := us(clock_timestamp());
    until bigint := at + least(15000000, greatest(1000000, 20 * (at - us(begun))));
begin
    if marks is not null then
        until := (current_setting('holdfast.marks')::jsonb ->> 'until')::bigint;
    end if;
    perform set_config('holdfast.marks', case when walked_far then json_build_object(
        'schema', current_schema(), 'until', until, 'types', coalesce(marks, '{}') || (
            select jsonb_object_agg(t.type, marked(t.type, marks, now)) from (select distinct unnest(types) as type) as t
        )
    )::text else '' end, false);
end $$;

-- Of one type. Where nothing is pending any more, a mark that was there moves up.
create or replace function marked(of_type text, marks jsonb, now timestamptz) returns jsonb language plpgsql stable as $$
begin
    return (
        select coalesce(jsonb_object_agg(m.priority, m.at - mark_margin()), '{}') from (
            select coalesce(old.priority, l.priority::text) as priority, us(least(l.run_at, now)) as at
            from jsonb_object_keys(marks -> of_type) as old (priority)
            full join lanes_past(array[of_type], marks) as l on l.priority::text = old.priority
        ) as m
    );
end $$;
