-- Schedules, and the one verb that turns their times into runs. Whoever writes a schedule, or the runs that it knows
-- of, holds the lock of its row; this lock is taken after the locks of topics and before any run. So of many keepers
-- that have seen the same schedule one fires it, and the others see that its revision has changed.

create or replace function schedule_record(s workflow_schedule) returns json language plpgsql stable as $$
begin
    return json_build_object(
        'id', s.id, 'name', s.name, 'tenant', s.tenant, 'type', s.type, 'params_json', s.payload::text,
        'cron', s.cron, 'zone', s.zone, 'every_us', s.every_us, 'anchor_at', shown_at(s.anchor_at),
        'jitter_us', s.jitter_us, 'overlap', s.overlap, 'catch_up', s.catch_up, 'priority', s.priority,
        'max_attempts', s.max_attempts, 'timeout_seconds', s.timeout_seconds, 'ttl_seconds', s.ttl_seconds,
        'budget_units', s.budget, 'limit_key', s.limit_key, 'labels_json', s.labels::text, 'paused', s.paused,
        'paused_by', s.paused_by, 'next_at', shown_at(s.next_at),
        'waiting', (
            select coalesce(json_agg(shown_at(w.at) order by w.place), '[]')
            from unnest(s.waiting) with ordinality as w (at, place)
        ),
        'fired', s.fired, 'skipped', s.skipped, 'last_at', shown_at(s.last_at), 'last_run', s.last_run,
        'last_skipped_at', shown_at(s.last_skipped_at), 'last_missed_at', shown_at(s.last_missed_at), 'rev', s.rev,
        'created_at', shown_at(s.created_at), 'updated_at', shown_at(s.updated_at)
    );
end $$;

-- True when a run of the schedule is open: not ended and not deleted. The runs are read one after the other and not as
-- a join: the first open one is enough.
create or replace function schedule_is_open(schedule uuid) returns boolean language plpgsql stable as $$
begin
    return exists (
        select 1 from workflow_firing as f where f.schedule_id = schedule and (
            select case when r.present is null then r.finished_at is null and r.deleted_at is null else (
                select p.finished_at is null and p.deleted_at is null from workflow_run as p where p.id = r.present
            ) end from workflow_run as r where r.id = f.run_id
        )
    );
end $$;

create or replace function schedules(
    of_tenant text, of_name text, most bigint, after_tenant text, after_name text, budget bigint default 8388608
) returns json language plpgsql
set search_path from current set cursor_tuple_fraction = 1 set plan_cache_mode = force_custom_plan set jit = off as $$
declare
    records refcursor;
begin
    open records no scroll for select schedule_record(shown.s)::text from (
        select s from workflow_schedule as s
        where (of_tenant is null or s.tenant = of_tenant) and (of_name is null or s.name = of_name)
            and (after_tenant is null or (s.tenant, s.name) > (after_tenant, after_name))
        order by s.tenant, s.name limit greatest(0, most)
    ) as shown;
    return page_of(records, budget);
end $$;

-- Making and changing schedules.

-- The fields of a new schedule as a row. Columns that only a firing or a pause writes keep their values of `s`.
create or replace function said_of(s workflow_schedule, new json) returns workflow_schedule
language plpgsql stable as $$
begin
    perform refuse_odd_schedule(new);
    s.type := new ->> 'type';
    s.payload := (new ->> 'params')::json;
    if (s.cron, s.zone, s.every_us) is distinct from (new ->> 'cron', new ->> 'zone', (new ->> 'every_us')::bigint) then
        s.cron := new ->> 'cron';
        s.zone := new ->> 'zone';
        s.every_us := (new ->> 'every_us')::bigint;
        s.anchor_at := checked_moment('anchor_at', (new ->> 'anchor_at')::bigint);
        s.next_at := checked_moment('next_at', (new ->> 'next_at')::bigint);
    end if;
    s.jitter_us := (new ->> 'jitter_us')::bigint;
    s.overlap := new ->> 'overlap';
    s.catch_up := new ->> 'catch_up';
    s.priority := (new ->> 'priority')::integer;
    s.max_attempts := (new ->> 'max_attempts')::integer;
    s.timeout_seconds := (new ->> 'timeout_seconds')::double precision;
    s.ttl_seconds := (new ->> 'ttl_seconds')::double precision;
    s.budget := (new ->> 'budget')::bigint;
    s.limit_key := new ->> 'limit_key';
    s.labels := (new ->> 'labels')::json;
    return s;
end $$;

-- Refuse a schedule that has no name, or whose runs could never be started.
create or replace function refuse_odd_schedule(new json) returns void language plpgsql as $$
declare
    fault text := start_fault(
        new ->> 'type', is_bare(new ->> 'type'), new ->> 'tenant', null, new ->> 'limit_key', (new ->> 'priority')::integer, null,
        (new ->> 'max_attempts')::integer, (new ->> 'budget')::bigint, new ->> 'labels', new ->> 'params'
    );
begin
    perform checked_name('schedule', new ->> 'name');
    perform refuse('UsageError', fault) where fault is not null;
end $$;

create or replace function make_schedule(new json, now timestamptz) returns workflow_schedule language plpgsql as $$
#variable_conflict use_column
declare
    s workflow_schedule;
begin
    s := said_of(s, new);
    insert into workflow_schedule (
        tenant, name, id, type, payload, cron, zone, every_us, anchor_at, next_at, jitter_us, overlap, catch_up,
        priority, max_attempts, timeout_seconds, ttl_seconds, budget, limit_key, labels, created_at, updated_at
    )
    values (
        new ->> 'tenant', new ->> 'name', (new ->> 'id')::uuid, s.type, s.payload, s.cron, s.zone, s.every_us,
        s.anchor_at, s.next_at, s.jitter_us, s.overlap, s.catch_up, s.priority, s.max_attempts, s.timeout_seconds,
        s.ttl_seconds, s.budget, s.limit_key, s.labels, now, now
    )
    on conflict (tenant, name) do nothing returning * into s;
    return s;
end $$;

-- Only different values are a change. When `overlap` changes from `allow`, only the last run that was started counts as
-- open.
create or replace function change_schedule(old workflow_schedule, new json, now timestamptz) returns workflow_schedule
language plpgsql as $$
#variable_conflict use_column
declare
    s workflow_schedule := said_of(old, new);
begin
    if s::text = old::text then
        return old;
    end if;
    if old.overlap = 'allow' and s.overlap <> 'allow' and old.last_run is not null then
        insert into workflow_firing (schedule_id, run_id) values (old.id, old.last_run) on conflict do nothing;
    end if;
    update workflow_schedule as w
    set type = s.type, payload = s.payload, cron = s.cron, zone = s.zone, every_us = s.every_us,
        anchor_at = s.anchor_at, next_at = s.next_at, jitter_us = s.jitter_us, overlap = s.overlap,
        catch_up = s.catch_up, priority = s.priority, max_attempts = s.max_attempts,
        timeout_seconds = s.timeout_seconds, ttl_seconds = s.ttl_seconds, budget = s.budget, limit_key = s.limit_key,
        labels = s.labels, rev = w.rev + 1, updated_at = now
    where w.id = old.id returning * into s;
    perform hint();
    return s;
end $$;

create or replace function schedule(new json) returns json language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    s workflow_schedule;
begin
    loop
        select * into s from workflow_schedule as w
        where w.tenant = new ->> 'tenant' and w.name = new ->> 'name' for update;
        if found then
            return schedule_record(change_schedule(s, new, now));
        end if;
        s := make_schedule(new, now);
        -- Not found: another session has just made it, and it may be gone again.
        if s.id is not null then
            perform hint();
            return schedule_record(s);
        end if;
    end loop;
end $$;

create or replace function unschedule(name text, tenant text) returns boolean language plpgsql
set search_path from current as $$
declare
    gone uuid;
begin
    delete from workflow_schedule as s where s.tenant = unschedule.tenant and s.name = unschedule.name
    returning s.id into gone;
    delete from workflow_firing as f where f.schedule_id = gone;
    return gone is not null;
end $$;

create or replace function lock_schedule(name text, tenant text) returns workflow_schedule language plpgsql as $$
declare
    s workflow_schedule;
begin
    select * into s from workflow_schedule as w
    where w.tenant = lock_schedule.tenant and w.name = lock_schedule.name for update;
    if not found then
        perform refuse('UnknownSchedule', 'no schedule ' || quote_literal(name), json_build_object('name', name));
    end if;
    return s;
end $$;

create or replace function pause_schedule(name text, tenant text, who text) returns json language plpgsql
set search_path from current as $$
declare
    now timestamptz := clock();
    s workflow_schedule := lock_schedule(name, tenant);
begin
    if not s.paused then
        update workflow_schedule as w
        set paused = true, paused_by = who, rev = w.rev + 1, updated_at = now
        where w.id = s.id returning * into s;
    end if;
    return schedule_record(s);
end $$;

create or replace function resume_schedule(name text, rev bigint, next_at bigint, tenant text) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    s workflow_schedule := lock_schedule(name, tenant);
begin
    if not s.paused then
        return schedule_record(s);
    end if;
    if s.rev <> resume_schedule.rev then
        perform refuse(
            'Conflict', 'schedule ' || quote_literal(s.name) || ' was changed at the same moment: try again'
        );
    end if;
    update workflow_schedule as w
    set paused = false, paused_by = null, next_at = checked_moment('next_at', resume_schedule.next_at),
        rev = w.rev + 1, updated_at = now
    where w.id = s.id returning * into s;
    perform hint();
    return schedule_record(s);
end $$;
