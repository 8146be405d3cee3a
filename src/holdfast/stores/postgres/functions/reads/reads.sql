-- Reads: what people see. They lock nothing that a writer waits for, and each sees one instant of the store.

-- A page that is limited in bytes: the records of a cursor as long as they fit, at least one if there is one. Each
-- record is fetched by itself, so that at most one row is read that is not returned. Open the cursor with
-- cursor_tuple_fraction = 1, or the planner chooses a plan that is good for the first rows only.
create or replace function page_of(records refcursor, budget bigint) returns json language plpgsql as $$
declare
    record text;
    page text[] := '{}';
begin
    loop
        fetch records into record;
        exit when not found;
        budget := budget - octet_length(record);
        exit when budget < 0 and page <> '{}';
        page := page || record;
    end loop;
    close records;
    return ('[' || array_to_string(page, ',') || ']')::json;
end $$;

create or replace function get(run uuid, tenant text) returns json language plpgsql stable set search_path from current
as $$
declare
    r workflow_run;
    record json;
begin
    select w.* into r from workflow_run as w
    where w.id = get.run and w.deleted_at is null and (get.tenant is null or w.tenant = get.tenant);
    if r.id is null then
        return null;
    end if;
    record := run_record(r);
    if r.status = 'leased' then
        return left(record::text, -1) || ',"running":' || running_steps(r) || '}';
    end if;
    return record;
end $$;

-- The conditions of a list. Values are parameters: $1 the id before which it begins, $3 statuses, $4 texts (kind of wait,
-- prefix of the type, type, tenant, key), $5 the parent. Statuses are looked up elsewhere where an index has them.
create or replace function terms_of_list(filter json, with_statuses boolean default true) returns text language plpgsql immutable
as $$
begin
    return concat_ws(
        ' and ',
        -- A run that a purge has begun to remove is gone for everyone.
        case when (filter ->> 'deleted')::boolean then $t$(r.deleted_at is null or r.deleted_at > '-infinity')$t$
            else 'r.deleted_at is null' end,
        case when with_statuses and json_array_length(filter -> 'statuses') > 0 then 'r.status = any($3)' end,
        case when filter ->> 'waiting_on' is not null then $t$exists (
            select 1 from workflow_step as s
            where s.run_id = r.id and s.status = 'waiting' and s.finished_at is null and s.kind = $4[1]
        )$t$ end,
        -- A range, because LIKE treats _ as a wildcard.
        case when filter ->> 'type' like '%\%' then 'r.type >= $4[2] and r.type < $4[2] || chr(1114111)'
            when filter ->> 'type' is not null then 'r.type = $4[3]' end,
        case when filter ->> 'tenant' is not null then 'r.tenant = $4[4]' end,
        case when filter ->> 'key' is null then null
            when filter ->> 'tenant' is not null then 'r.idempotency_key = stored_key($4[4], $4[5])'
            else 'r.idempotency_key = stored_key(r.tenant, $4[5])' end,
        case when filter ->> 'parent' is not null then 'r.parent_id = $5' end
    );
end $$;

-- The columns of a run. A row that is passed to a function is read with all its values: those that are not asked for are
-- left out of it.
create or replace function list_columns(whole boolean) returns text language plpgsql stable as $$
begin
    return case when whole then 'r.*' else (
        select string_agg(case a.attname when 'payload' then $t$'null'::json as payload$t$
            when 'result' then 'null::json as result' else format('r.%I', a.attname) end, ', ' order by a.attnum)
        from pg_attribute as a where a.attrelid = 'workflow_run'::regclass and a.attnum > 0 and not a.attisdropped
    ) end;
end $$;

-- A page by id, newest first. The statement contains only the given terms, and is planned for their values: one plan
-- for every filter would read all runs for a rare status. Each status is looked up on its own, because the index of
-- status and id also gives the order. Labels, times, roots and errors have other ways: listing.sql.
create or replace function list(filter json, lim integer, after uuid, budget bigint default 8388608) returns json language plpgsql stable
set search_path from current set cursor_tuple_fraction = 1 set jit = off as $$
declare
    statuses text[] := array(select distinct s from unnest(texts(filter -> 'statuses')) as s);
    texts text[] := array[filter ->> 'waiting_on', left(filter ->> 'type', -1), filter ->> 'type', filter ->> 'tenant', filter ->> 'key'];
    records refcursor;
    slice json;
begin
    if is_filtered(filter) then
        loop
            slice := list_page(filter, lim, after, budget);
            after := (slice ->> 'after')::uuid;
            if after is null or lim <= 0 or json_array_length(slice -> 'runs') > 0 then
                return slice -> 'runs';
            end if;
        end loop;
    end if;
    open records no scroll for execute 'select run_record(r::workflow_run)::text from ('
        || statement_of_list(filter, list_columns(coalesce((filter ->> 'values')::boolean, true)), cardinality(statuses), after)
        || ') as r' using after, greatest(0, lim), statuses, texts, (filter ->> 'parent')::uuid;
    return page_of(records, budget);
end $$;

-- The statement of a list without slices: these columns of its runs, newest first, at most $2. The other parameters are
-- those of terms_of_list.
create or replace function statement_of_list(filter json, columns text, statuses integer, after uuid) returns text
language plpgsql stable as $$
declare
    terms text := concat_ws(' and ', terms_of_list(filter, false), case when after is not null then 'r.id < $1' end);
    part text := '(select ' || columns || ' from workflow_run as r where %s order by r.id desc limit $2)';
    parts text := (
        select string_agg(format(part, terms || ' and r.status = $3[' || place || ']'), ' union all ')
        from generate_series(1, statuses) as place
    );
begin
    return 'select * from (' || coalesce(parts, format(part, terms)) || ') as r order by r.id desc limit $2';
end $$;

-- The same runs with a few fields of each, at most 1,000. It reads no steps, waits and trail: 1,000 whole records take the server
-- thirty times as long.
create or replace function outlines(filter json, lim integer, after uuid) returns json language plpgsql stable
set search_path from current set cursor_tuple_fraction = 1 set jit = off as $$
declare
    statuses text[] := array(select distinct s from unnest(texts(filter -> 'statuses')) as s);
    texts text[] := array[filter ->> 'waiting_on', left(filter ->> 'type', -1), filter ->> 'type', filter ->> 'tenant', filter ->> 'key'];
    slice json;
    ids uuid[];
begin
    if is_filtered(filter) then
        loop
            slice := outlines_page(filter, lim, after);
            after := (slice ->> 'after')::uuid;
            if after is null or lim <= 0 or json_array_length(slice -> 'runs') > 0 then
                return slice -> 'runs';
            end if;
        end loop;
    end if;
    execute 'select array_agg(r.id) from (' || statement_of_list(filter, 'r.id', cardinality(statuses), after) || ') as r' into ids
    using after, least(greatest(0, lim), 1000), statuses, texts, (filter ->> 'parent')::uuid;
    return outlined_runs(ids);
end $$;

-- The steps of a run after a number, as many as fit into one answer.
create or replace function steps(run uuid, tenant text, after integer default -1, budget bigint default 8388608)
returns json language plpgsql stable set search_path from current as $$
begin
    return steps_page(run, tenant, after, budget) -> 'steps';
end $$;

-- The same, with the fence of the run and whether there are more. The current task of a plan gets its live status from
-- the run: it is not stored twice.
create or replace function steps_page(run uuid, tenant text, after integer, budget bigint, largest bigint default null)
returns json language plpgsql stable set search_path from current set cursor_tuple_fraction = 1 set enable_seqscan = off as $$
begin
    return steps_part(run, tenant, after, null, budget, largest);
end $$;

-- The same from the end: the steps with a seq below `before`, the newest first. Without statistics the planner would sort
-- all steps of the run.
create or replace function steps_before(run uuid, tenant text, before integer, budget bigint, largest bigint default null)
returns json language plpgsql stable set search_path from current set cursor_tuple_fraction = 0.01
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
    return steps_part(run, tenant, null, before, budget, largest);
end $$;

-- A page of steps: after a seq, or before one. Call it with the settings of steps_page.
create or replace function steps_part(run uuid, tenant text, after integer, before integer, budget bigint, largest bigint)
returns json language plpgsql stable as $$
declare
    r workflow_run;
    live workflow_step;
    records refcursor;
    page json;
    last integer;
begin
    select * into r from workflow_run as w
    where w.id = steps_part.run and w.deleted_at is null
        and (steps_part.tenant is null or w.tenant = steps_part.tenant);
    if r.id is null then
        perform refuse_unknown(steps_part.run);
    end if;
    if r.kind = 'plan' and r.status in ('pending', 'leased') then
        select * into live from workflow_step as s
        where s.run_id = r.id and s.status <> 'succeeded' order by s.seq limit 1;
        if live.kind = 'task' and live.status = 'pending' then
            live.status := case r.status when 'pending' then 'ready' else 'running' end;
            live.attempts := r.attempt;
            live.error := r.error;
        else
            live := null;
        end if;
    end if;
    if before is null then
        open records no scroll for
            select case when s.seq = live.seq then step_record(live, largest) else step_record(s, largest) end::text
            from workflow_step as s where s.run_id = r.id and s.seq > after order by s.seq;
    else
        open records no scroll for
            select case when s.seq = live.seq then step_record(live, largest) else step_record(s, largest) end::text
            from workflow_step as s where s.run_id = r.id and s.seq < before order by s.seq desc;
    end if;
    page := page_of(records, budget);
    last := (page -> -1 ->> 'seq')::integer;
    return json_build_object('fence', r.fence, 'steps', page, 'more', case when before is null
        then exists (select 1 from workflow_step as s where s.run_id = r.id and s.seq > last)
        else exists (select 1 from workflow_step as s where s.run_id = r.id and s.seq < last) end);
end $$;

create or replace function waiting_on(topic text, tenant text) returns json language plpgsql stable
set search_path from current set enable_seqscan = off as $$
begin
    return (
        select coalesce(json_agg(w.run_id order by w.run_id), '[]') from (
            select distinct s.run_id from workflow_step as s
            where s.status = 'waiting' and s.topic is not null
                and s.tenant = waiting_on.tenant and s.topic = waiting_on.topic
                and exists (select 1 from workflow_run as r where r.id = s.run_id and r.deleted_at is null)
        ) as w
    );
end $$;

-- Published workflows and present workers.

create or replace function definition_record(d workflow_definition, schemas boolean) returns json language sql stable as $$
    select json_build_object(
        'type', d.type, 'kind', d.kind, 'max_attempts', d.max_attempts, 'timeout_seconds', d.timeout_seconds,
        'description', d.description, 'steps', coalesce(d.steps, '[]'), 'budget', d.budget,
        'covers_children', coalesce(d.covers_children, false),
        'params_schema', case when schemas then d.params_schema end,
        'result_schema', case when schemas then d.result_schema end
    )
$$;

create or replace function definitions(schemas boolean default false) returns json language plpgsql stable
set search_path from current as $$
begin
    return (select coalesce(json_agg(definition_record(d, schemas) order by d.type), '[]') from workflow_definition as d);
end $$;

create or replace function presence_record(w workflow_worker) returns json language sql stable as $$
    select json_build_object(
        'worker', w.worker, 'types', w.types, 'patterns', w.patterns, 'tenants', w.tenants, 'runtime', w.runtime,
        'slots', w.slots, 'stragglers', w.stragglers, 'sinks', w.sinks, 'lacking', w.lacking, 'library', w.library,
        'seen_at', us(w.seen_at)
    )
$$;

-- True when this worker may take runs of that type and tenant. The registry entry is that of the type itself, otherwise
-- that of its name without version.
create or replace function can_run(w workflow_worker, type text, tenant text) returns boolean language plpgsql stable as $$
begin
    return (
        select can_run.type = any(texts(w.types)) and (w.tenants is null or can_run.tenant = any(texts(w.tenants)))
            and coalesce((
                select g.is_enabled and g.runtime = w.runtime from workflow_registry as g
                where g.workflow_name in (can_run.type, substring(can_run.type from '^(.*)\.v'))
                order by g.workflow_name = can_run.type desc limit 1
            ), true)
    );
end $$;

-- An overview of the store, made of counts and of the due runs of `scale`. `live`: a worker counts as present if it was
-- seen within so many seconds.
create or replace function stats(live double precision) returns json language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
    now timestamptz := clock();
    most integer := due_counted();
    present workflow_worker[];
    oldest timestamptz;
    stranded json;
begin
    select array_agg(w order by w.worker) into present from workflow_worker as w where w.seen_at >= now - span(live);
    with due as materialized (
        select d.type, d.of_tenant, least(d.due, most) as due, d.oldest from due_runs(null, scale_max(), now) as d
        where d.due > 0
    ), nobodys as (
        select d.type, sum(d.due) as number from due as d
        where not exists (select 1 from unnest(present) as w where can_run(w, d.type, d.of_tenant)) group by d.type
    )
    select (select min(d.oldest) from due as d), (select json_object_agg(n.type, n.number order by n.type) from nobodys as n)
    into oldest, stranded;
    return json_build_object(
        'now', us(now),
        'by_status', count_by_status(),
        'workers', coalesce((select json_agg(presence_record(w) order by w.worker) from unnest(present) as w), '[]'),
        'oldest_due_at', us(oldest),
        'unclaimable', coalesce(stranded, '{}'),
        'undelivered', (
            select count(*) from (select 1 from workflow_inbox as i where not i.delivered order by i.seq limit most) as e
        ) + (
            select count(*) from (select 1 from workflow_run as r where r.owes > 0 order by r.id limit most) as o
        ),
        'extra', server_figures()
    );
end $$;

-- Figures that only a server has. It hides the times of other roles' sessions, unless the role may read all statistics.
create or replace function server_figures() returns json language plpgsql stable as $$
begin
    return (
        select json_build_object(
            'connections', (select count(*) from pg_stat_activity where datname = current_database()),
            'oldest_xmin_age', coalesce((
                select max(extract(epoch from clock_timestamp() - a.xact_start))::bigint from pg_stat_activity as a
                where a.datname = current_database() and a.pid <> pg_backend_pid()
                    and (a.backend_xmin is not null or a.backend_xid is not null)
            ), 0),
            'dead_rows', (select sum(t.n_dead_tup) from pg_stat_user_tables as t where t.schemaname = current_schema()),
            'database_bytes', pg_database_size(current_database())
        )
    );
end $$;
