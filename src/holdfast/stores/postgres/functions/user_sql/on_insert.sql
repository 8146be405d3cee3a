-- INSERT by user SQL (functions `plain_…`), in any language: the triggers turn it into what the verbs write. Verbs write `rev` themselves and
-- skip the triggers; a row of user SQL has rev 0. The trigger before the row only fills in and checks, because a row
-- that conflicts comes here too. The trigger after the row writes what a start adds. They run in the session of any
-- role, with the rights of the schema's owner; rights.sql says what keeps that safe.

create or replace function plain_start() returns trigger language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    ours text;
    d workflow_definition;
begin
    perform refuse_other_table(tg_relid, 'workflow_run'::regclass);
    new.payload := checked_value('payload', coalesce(new.payload, 'null'));  -- first: a large value costs no more
    new.labels := checked_labels(new.labels);
    new.trace := checked_text('trace', new.trace);
    select string_agg(c.key, ', ' order by c.key) into ours from json_each(plain_words(new)) as c
    where c.key <> all(producers_columns()) and c.value::text not in ('null', '0', '""')
        and (c.key, c.value::text) not in (('status', '"pending"'), ('kind', '"code"'), ('max_crashes', '4'));
    if ours is not null or new.result is not null or new.error is not null or new.progress is not null then
        perform refuse('UsageError', 'a run is started as pending, and the database writes the other columns: leave out '
                       || coalesce(ours, 'result, error and progress'));
    end if;
    new.type := checked_type(coalesce(new.type, ''));
    select * into d from workflow_definition as w where w.type = new.type;
    new.id := coalesce(new.id, new_id());
    new.tenant := checked_tenant(coalesce(new.tenant, 'default'));
    -- The engine starts its own runs by the verb; a bulk operation, for one, may change the runs of all tenants.
    if starts_with(new.type, 'holdfast.') or starts_with(new.tenant, 'holdfast.') then
        perform refuse('UsageError', 'types and tenants that begin with holdfast. are reserved: use another name');
    end if;
    new.kind := coalesce(d.kind, 'code');
    new.priority := checked_priority(coalesce(new.priority, 100));
    new.run_at := checked_time(coalesce(new.run_at, now));
    new.idempotency_key := stored_key(new.tenant, checked_name('idempotency_key', new.idempotency_key));
    new.max_attempts := coalesce(new.max_attempts, nullif(d.max_attempts, 0), 3);
    perform refuse('UsageError', attempts_fault(new.max_attempts)) where new.max_attempts < 1;
    new.limit_key := checked_name('limit_key', new.limit_key);
    new.budget := coalesce(new.budget, d.budget);
    if new.budget < 1 or new.ttl_seconds < 0 or new.timeout_seconds < 0 then
        perform refuse('UsageError', negative_fault());
    end if;
    new.timeout_seconds := bounded(coalesce(new.timeout_seconds, d.timeout_seconds));
    new.timeout_at := times_out_at(new.run_at, now, new.timeout_seconds);
    new.ttl_seconds := bounded(new.ttl_seconds);
    new.inbox_mark := inbox_mark();
    new.fence := first_fence();
    new.digest := 'sql';
    new.created_at := now;
    new.updated_at := now;
    if new.parent_id is not null and not exists (
        select 1 from workflow_run as p where p.id = new.parent_id and p.tenant = new.tenant and p.deleted_at is null
    ) then
        perform refuse_unknown(new.parent_id);
    end if;
    new.account := account_of(new.id, new.parent_id, coalesce(d.covers_children, false), new.budget);
    return new;
end $$;

-- The triggers have the owner's rights, and another table may have types whose checks are code. So each trigger calls
-- this first, before it reads a row.
create or replace function refuse_other_table(given oid, own regclass) returns void language plpgsql as $$
begin
    if given <> own then
        perform refuse('UsageError', 'this trigger is for ' || own || ' alone, not for ' || given::regclass);
    end if;
end $$;

-- The columns that a start may set. The two times are set by the store, but a statement that writes them is not
-- refused.
create or replace function producers_columns() returns text[] language sql immutable as $$
    select array['id', 'tenant', 'type', 'payload', 'priority', 'run_at', 'idempotency_key', 'max_attempts', 'limit_key',
                 'labels', 'budget', 'timeout_seconds', 'ttl_seconds', 'parent_id', 'trace', 'created_at', 'updated_at']
$$;

create or replace function plain_started() returns trigger language plpgsql set search_path from current as $$
declare
    d workflow_definition;
begin
    perform refuse_other_table(tg_relid, 'workflow_run'::regclass);
    select * into d from workflow_definition as w where w.type = new.type;
    if d.kind = 'plan' and coalesce(d.steps -> 0 ->> 'kind', 'task') <> 'task' then
        perform lock_topics(plan_topics(json_build_array(json_build_object('type', new.type, 'tenant', new.tenant))));
    end if;
    perform begin_run(new, d, new.created_at, null);
    perform hint();
    return null;
end $$;

-- A trail row of a worker, for a run that exists. A writer of a run's trail locks the run's row, and only then takes a
-- number; otherwise a reader that follows the trail by number would miss it.
create or replace function plain_tell() returns trigger language plpgsql set search_path from current as $$
begin
    perform refuse_other_table(tg_relid, 'workflow_event'::regclass);
    perform 1 from workflow_run as r
    where r.id = new.workflow_id and r.deleted_at is distinct from '-infinity' for no key update;
    if not found then
        perform refuse_unknown(new.workflow_id);
    end if;
    new.event_type := checked_name('event_type', coalesce(new.event_type, ''));
    new.data := checked_value('data', coalesce(new.data, '{}'));
    if json_typeof(new.data) <> 'object' then
        perform refuse('UsageError', 'data of a trail row is an object, as in ''{"done": 7}'', not '
                       || left(new.data::text, 40));
    end if;
    new.id := nextval('workflow_event_id_seq');
    new.created_at := clock();
    return new;
end $$;
