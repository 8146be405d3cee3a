-- claim: lease the due runs of some types, best first, in one commit. README.md in this folder explains how claiming
-- works.

-- The settings also hold for every function that this one calls. They force the intended plans (an index, row by row,
-- planned once), also where the planner's statistics are those of an empty table.
create or replace function claim(ask json) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    chosen uuid[];
    asked record;
begin
    select * into asked from json_to_record(ask) as a (
        worker text, types text[], tenants text[], "limit" integer, lease_seconds double precision, crashed integer[],
        bytes bigint
    );
    if is_limited() then
        perform lock_limits();
        chosen := choose_limited(ask, current_instant());
        -- Reading runs that limits hold back takes time, and so does waiting for another claim. The lease counts from
        -- now, so that it is as long as was asked for. Rates count the claim at the instant of its lease.
        now := current_instant();
        if chosen is not null then
            perform note_uses(chosen, now);
        end if;
    else
        chosen := choose_unlimited(asked.types, asked.tenants, asked.crashed, asked."limit", now);
    end if;
    if chosen is null then
        return '[]';
    end if;
    return lease(chosen, asked.worker, span(asked.lease_seconds), coalesce(asked.bytes, 8388608), now);
end $$;

-- Wake keepers up after a claim with a short lease: they sleep for up to 33 s, and a lease that ends in the first half of
-- that must not wait for their next look. It is a call of its own, because a commit with a wake-up waits until all such
-- commits before it are durable, and claims must not wait for each other. It writes nothing, so it is soon over.
create or replace function announce_lease() returns void language plpgsql set search_path from current as $$
begin
    perform hint();
end $$;

-- The next due runs, not locked. The index visits each distinct priority of a type, and reads only due runs there,
-- starting at the first one. So index entries of runs that were taken, and that vacuum cannot remove yet, are read
-- once. Runs that are due later are not read, even at a better priority.
create or replace function candidates(types text[], tenants text[], now timestamptz, size integer)
returns table (id uuid, priority integer, run_at timestamptz, crashes integer) language plpgsql stable as $$
#variable_conflict use_column
begin
    if tenants is null then
        return query
        with recursive queue (type, priority, run_at) as (
            select t.type, head.priority, head.run_at
            from (select distinct unnest(types) as type) as t cross join lateral (
                select r.priority, r.run_at from workflow_run as r
                where r.type = t.type and r.status = 'pending' and r.deleted_at is null
                order by r.priority, r.run_at, r.id limit 1
            ) as head
            union all
            select queue.type, head.priority, head.run_at
            from queue cross join lateral (
                select r.priority, r.run_at from workflow_run as r
                where r.type = queue.type and r.status = 'pending' and r.deleted_at is null
                    and r.priority > queue.priority
                order by r.priority, r.run_at, r.id limit 1
            ) as head
        )
        select due.id, queue.priority, due.run_at, due.crashes
        from queue cross join lateral (
            select r.id, r.run_at, r.crashes from workflow_run as r
            where r.type = queue.type and r.priority = queue.priority and r.run_at >= queue.run_at and r.run_at <= now
                and r.status = 'pending' and r.deleted_at is null
            order by r.run_at, r.id limit size
        ) as due
        order by queue.priority, due.run_at, due.id limit size;
    else
        return query
        with recursive queue (tenant, type, priority, run_at) as (
            select o.tenant, t.type, head.priority, head.run_at
            from (select distinct unnest(types) as type) as t
            cross join (select distinct unnest(tenants) as tenant) as o cross join lateral (
                select r.priority, r.run_at from workflow_run as r
                where r.tenant = o.tenant and r.type = t.type and r.status = 'pending' and r.deleted_at is null
                order by r.priority, r.run_at, r.id limit 1
            ) as head
            union all
            select queue.tenant, queue.type, head.priority, head.run_at
            from queue cross join lateral (
                select r.priority, r.run_at from workflow_run as r
                where r.tenant = queue.tenant and r.type = queue.type and r.status = 'pending' and r.deleted_at is null
                    and r.priority > queue.priority
                order by r.priority, r.run_at, r.id limit 1
            ) as head
        )
        select due.id, queue.priority, due.run_at, due.crashes
        from queue cross join lateral (
            select r.id, r.run_at, r.crashes from workflow_run as r
            where r.tenant = queue.tenant and r.type = queue.type and r.priority = queue.priority
                and r.run_at >= queue.run_at and r.run_at <= now
                and r.status = 'pending' and r.deleted_at is null
            order by r.run_at, r.id limit size
        ) as due
        order by queue.priority, due.run_at, due.id limit size;
    end if;
end $$;

-- Choose runs where no limit is set: only their order decides. It reads more than it needs, because other claims take
-- some meanwhile.
create or replace function choose_unlimited(
    types text[], tenants text[], crashed integer[], wanted integer, now timestamptz
) returns uuid[] language plpgsql as $$
declare
    size integer := wanted * 5 / 4 + 20;
    ids uuid[];
    crash_counts integer[];
    count integer;
    begun timestamptz := clock_timestamp();
    walked bigint := dead_entries_read();
    watermarks jsonb := watermarks(tenants);
begin
    loop
        if watermarks is null then
            select array_agg(c.id), array_agg(c.crashes) into ids, crash_counts from candidates(types, tenants, now, size) as c;
        else
            select array_agg(c.id), array_agg(c.crashes) into ids, crash_counts
            from candidates_from(types, watermarks, now, size) as c;
        end if;
        count := coalesce(array_length(ids, 1), 0);
        exit when count = 0;
        if cardinality(crashed) > 0 and 0 < any(crash_counts) then
            ids := within_crash_limits(ids, crash_counts, crashed, wanted);
        end if;
        exit when count < size or cardinality(ids) >= wanted;
        size := size * 4;
    end loop;
    walked := dead_entries_read() - walked;
    if walked > 5000
        or (watermarks is null and tenants is null and current_setting('holdfast.watermarks', true) <> '') then
        perform keep_watermarks(types, watermarks, walked > 5000, begun, now);
    end if;
    return case when count > 0 then lock_candidates(ids, wanted, now) end;
end $$;

-- Lock those candidates that no other session has locked and that are still pending and due; return them in order.
-- `status || ''` makes sure that only the primary key can serve, and not the index of pending runs. The rows are found
-- by a list of ids and not by a join: a join that was planned while the table was small would read all of it.
create or replace function lock_candidates(ids uuid[], wanted integer, now timestamptz) returns uuid[] language plpgsql as $$
begin
    return (
        select array_agg(mine.id order by mine.place) from (
            select r.id, array_position(ids, r.id) as place
            from workflow_run as r
            where r.id = any(ids) and r.status || '' = 'pending' and r.deleted_at is null and r.run_at <= now
            order by place limit wanted
            for no key update of r skip locked
        ) as mine
    );
end $$;

-- The candidates without those that exceed the worker's bounds for runs that crashed: it takes at most crashed[k] runs
-- that crashed k times or more.
create or replace function within_crash_limits(ids uuid[], crash_counts integer[], crashed integer[], wanted integer) returns uuid[]
language plpgsql immutable as $$
declare
    held integer[] := array_fill(0, array[cardinality(crashed)]);
    left_ids uuid[] := array[]::uuid[];
    levels integer;
    too_many boolean;
begin
    for place in 1 .. cardinality(ids) loop
        levels := least(crash_counts[place], cardinality(crashed));
        too_many := false;
        for level in 1 .. levels loop
            too_many := too_many or held[level] >= crashed[level];
        end loop;
        continue when too_many;
        for level in 1 .. levels loop
            held[level] := held[level] + 1;
        end loop;
        left_ids := left_ids || ids[place];
        exit when cardinality(left_ids) >= wanted;
    end loop;
    return left_ids;
end $$;

create or replace function texts(list json) returns text[] language plpgsql immutable as $$
begin
    return case when list is null or json_typeof(list) = 'null' then null
        else array(select json_array_elements_text(list)) end;
end $$;

-- Lease rows that are locked, and return all that is needed to execute them. The values have at most `bytes` bytes
-- together; a run that does not fit is returned as `unread`, without its values.
create or replace function lease(chosen uuid[], worker text, lasts interval, bytes bigint, now timestamptz) returns json
language plpgsql as $$
declare
    answer text;
begin
    with mine as (
        update workflow_run as r
        set status = 'leased', leased_by = worker, lease_until = now + lasts, attempt = r.attempt + 1,
            fence = r.fence + 1, pause_asked_by = null, updated_at = now, rev = r.rev + 1
        where r.id = any(chosen) and r.status || '' = 'pending'
        returning r.id, r.type, r.tenant, r.payload, r.fence, r.attempt, r.crashes, r.max_attempts, r.created_at,
            r.lease_until, r.run_at, r.rev, r.kind, array_position(chosen, r.id) as place,
            r.kind <> 'code' or r.timeout_at is not null or r.parent_id is not null or r.cost <> 0
            or r.budget is not null or r.labels is not null or r.trace is not null as rare,
            case when pg_column_size(r.payload) + coalesce(pg_column_size(r.labels), 0) > 65536
                then double precision 'infinity'
                else octet_length(r.payload::text) + coalesce(octet_length(r.labels::text), 0) end
            + case when r.rev > 1 or r.kind = 'plan' then steps_bytes(r.id) else 0 end as size
    ), trail_rows as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select m.id, 'leased', ('{"worker":' || to_json(worker)::text || ',"attempt":' || m.attempt
                                || ',"fence":' || m.fence || '}')::json, now, false
        from mine as m order by m.place
    ), sized as (
        select m.*, m.size <= bytes
            and sum(case when m.size <= bytes then m.size else 0 end) over (order by m.place) <= bytes as fits
        from mine as m
    )
    -- The JSON is concatenated by hand: json_build_object looks up the type of each value for each row, which costs as
    -- much as the claim itself.
    select '[' || string_agg(
        '{"id":"' || m.id || '","type":' || to_json(m.type)::text || ',"tenant":' || to_json(m.tenant)::text
        || case when m.fits then ',"params":' || to_json(m.payload::text)::text else ',"unread":true' end
        || ',"fence":' || m.fence || ',"attempt":' || m.attempt
        || ',"crashes":' || m.crashes || ',"max_attempts":' || m.max_attempts
        || ',"created_at":' || us_near(m.created_at) || ',"lease_until":' || us_near(m.lease_until)
        || ',"run_at":' || us_near(m.run_at)
        || case when m.rev > 2 or m.rare then claim_more(m.id, m.rev, m.kind, m.fits) else '' end || '}',
        ',' order by m.place
    ) || ']' into answer from sized as m;
    return coalesce(answer, '[]')::json;
end $$;

-- The number of a log row. A row with an escape that Postgres cannot read (\u0000, half of a surrogate pair) has no
-- number; it must not break every claim.
create or replace function log_no(data json) returns bigint language plpgsql immutable as $$
declare
    said text;
begin
    if position('\u' in data::text) = 0 then
        said := (data -> 'log_no')::text;
    else
        begin
            said := (data -> 'log_no')::text;
        exception when untranslatable_character or invalid_text_representation then
            return null;
        end;
    end if;
    return case when said ~ '^\d{1,18}$' then said::bigint end;
end $$;

-- The fields that most runs do not have. A row that only this claim has changed since its start has neither steps nor
-- logs; but a plan has its steps.
create or replace function claim_more(run uuid, rev bigint, kind text, fits boolean) returns text
language plpgsql stable as $$
begin
    return (
        select ',' || trim(both '{}' from json_build_object(
            'timeout_at', us(r.timeout_at), 'kind', r.kind, 'parent', r.parent_id, 'cost', r.cost, 'budget', r.budget,
            'account', r.account, 'left', case when r.account is not null then left_of(r.account) end,
            'labels_json', case when fits then r.labels::text end, 'trace', coalesce(r.trace, ''),
            'logs', case when claim_more.rev > 2 then logs_of(r.id) else 0 end
        )::text)
        from workflow_run as r where r.id = run
    ) || ',"steps":' || case when fits and (claim_more.rev > 2 or claim_more.kind = 'plan')
        then step_records(run) else '[]' end;
end $$;

-- The number of log rows that the code of the run has written. Only the newest is read: there may be very many.
create or replace function logs_of(run uuid) returns bigint language plpgsql stable as $$
begin
    return coalesce((
        select log_no(e.data) from workflow_event as e
        where e.workflow_id = run and e.event_type = 'log' and not e.told and log_no(e.data) is not null
        order by e.id desc limit 1
    ), 0);
end $$;
