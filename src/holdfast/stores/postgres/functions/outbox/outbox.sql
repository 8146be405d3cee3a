-- The outbox: messages that commits write and people see. Messages of one tenant, sink and key form a queue (a line in
-- the names below).
--
-- The first message of a queue changes only under the lock of that queue. A commit that sends, an answer and a resend
-- take this lock before any row. So `behind` is always right, and a queue has the order of its commits.

-- The lock of a message's queue; null: the message is in no queue.
create or replace function line_of(tenant text, sink text, key text) returns text language sql immutable as
    $$select tenant || U&'\001F' || sink || U&'\001F' || key$$;

-- The first pending message of a queue after a number. It is asked for as the next entry of the index of queues, so
-- that no other index gives this order without sorting: by the name of the queue alone, a planner may read all messages
-- that were ever sent.
create or replace function next_of_line(of_tenant text, of_sink text, of_key text, after bigint) returns bigint
language plpgsql set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    o record;
begin
    select f.tenant, f.sink, f.key, f.seq into o from workflow_outbox as f
    where f.status = 'pending' and f.key is not null
        and (f.tenant, f.sink, f.key, f.seq) > (of_tenant, of_sink, of_key, after)
    order by f.tenant, f.sink, f.key, f.seq limit 1;
    return case when (o.tenant, o.sink, o.key) = (of_tenant, of_sink, of_key) then o.seq end;
end $$;

-- Write messages within the sender's own commit, which holds the locks of their queues. An id that is there already is
-- left alone.
create or replace function put_messages(run uuid, tenant text, messages json, now timestamptz) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    m record;
begin
    for m in
        select * from json_to_recordset(messages) as m (id text, step text, sink text, key text, payload text)
    loop
        insert into workflow_outbox (id, tenant, run_id, step, sink, key, payload, behind, next_at, created_at)
        values (
            m.id, tenant, run, m.step, m.sink, m.key, coalesce(m.payload, 'null')::json,
            m.key is not null and next_of_line(tenant, m.sink, m.key, 0) is not null, now, now
        )
        on conflict (id) do nothing;
    end loop;
end $$;

create or replace function message_record(o workflow_outbox) returns json language sql stable as $$
    select json_build_object(
        'seq', o.seq, 'id', o.id, 'tenant', o.tenant, 'run', o.run_id, 'step', o.step, 'sink', o.sink, 'key', o.key,
        'payload_json', o.payload::text, 'status', o.status, 'attempts', o.attempts, 'held_by', o.held_by,
        'next_at', shown_at(case when o.status = 'pending' and not o.behind then o.next_at end),
        'error_json', o.last_error::text, 'created_at', shown_at(o.created_at), 'tried_at', shown_at(o.tried_at),
        'sent_at', shown_at(o.sent_at)
    )
$$;

-- Planned for the given filter. Messages that are not sent have an index of their own.
create or replace function outbox(filter json, most bigint, after bigint, budget bigint default 8388608) returns json language plpgsql
set search_path from current set cursor_tuple_fraction = 1 set enable_seqscan = off set jit = off as $$
declare
    statuses text[] := array(select json_array_elements_text(filter -> 'statuses'));
    terms text := 'o.seq > $1';
    records refcursor;
begin
    terms := terms || case when filter ->> 'id' is null then '' else ' and o.id = $2 ->> ''id''' end
        || case when filter ->> 'run' is null then '' else ' and o.run_id = ($2 ->> ''run'')::uuid' end
        || case when filter ->> 'tenant' is null then '' else ' and o.tenant = $2 ->> ''tenant''' end
        || case when filter ->> 'sink' is null then '' else ' and o.sink = $2 ->> ''sink''' end
        || case when statuses = '{}' then '' else ' and o.status = any($3)' end
        || case when statuses = '{}' or 'sent' = any(statuses) then '' else ' and o.status <> ''sent''' end;
    open records no scroll for execute format(
        'select message_record(o::workflow_outbox)::text
        from (select * from workflow_outbox as o where %s order by o.seq limit $4) as o', terms
    ) using after, filter, statuses, greatest(0, most);
    return page_of(records, budget);
end $$;

-- The row of the run is locked, so that no purge is removing the message.
create or replace function resend(id text, tenant text) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
    now timestamptz := clock();
    o workflow_outbox;
begin
    select * into o from workflow_outbox as m
    where m.id = resend.id and (resend.tenant is null or m.tenant = resend.tenant);
    perform lock_lines(array[line_of(o.tenant, o.sink, o.key)]);
    perform 1 from workflow_run as r where r.id = o.run_id and r.deleted_at is distinct from '-infinity'
    for no key update;
    if not found then
        perform refuse('UnknownMessage', 'no message ' || resend.id, json_build_object('id', resend.id));
    end if;
    select * into o from workflow_outbox as m where m.id = resend.id for update;
    if o.last_error ->> 'kind' = 'moved' and o.last_error ->> 'message' = 'its run moves to another store' then
        perform refuse('Conflict', 'message ' || resend.id || ' moves to another store with its run: that store sends it');
    end if;
    if o.status <> 'pending' then
        update workflow_outbox as m
        set seq = default, status = 'pending', attempts = 0, tried_at = null, sent_at = null, next_at = now,
            behind = o.key is not null and next_of_line(o.tenant, o.sink, o.key, 0) is not null
        where m.id = resend.id returning * into o;
        perform hint();
    elsif o.held_by is null and not o.behind then
        update workflow_outbox as m set next_at = now where m.id = resend.id returning * into o;
        perform hint();
    end if;
    return message_record(o);
end $$;

-- At most DUE_COUNTED messages of each sink are counted; the index goes from one sink to the next. The settings, and the
-- orders, leave the planner no other index, also where its statistics are those of an empty table.
create or replace function backlog() returns json language plpgsql set search_path from current set jit = off
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
    return (
        with recursive sinks (sink) as (
            (select o.sink from workflow_outbox as o where o.status <> 'sent' order by o.sink limit 1)
            union all
            select next.sink from sinks as s cross join lateral (
                select o.sink from workflow_outbox as o where o.status <> 'sent' and o.sink > s.sink
                order by o.sink limit 1
            ) as next
        )
        select coalesce(json_agg(json_build_object(
            'sink', s.sink,
            'pending', (
                select count(*) from (
                    select 1 from workflow_outbox as o where o.sink = s.sink and o.status = 'pending'
                    order by o.created_at limit 10000
                ) as counted
            ),
            'dead', (
                select count(*) from (
                    select 1 from workflow_outbox as o where o.sink = s.sink and o.status = 'dead'
                    order by o.created_at limit 10000
                ) as counted
            ),
            'oldest_at', (
                select us(o.created_at) from workflow_outbox as o where o.sink = s.sink and o.status = 'pending'
                order by o.created_at limit 1
            )
        ) order by s.sink), '[]')
        from sinks as s
    );
end $$;

create or replace function webhook_record(w workflow_webhook) returns json language sql stable as $$
    select json_build_object(
        'name', w.name, 'target', w.target::text, 'allow_private', w.allow_private, 'rev', w.rev,
        'created_at', us(w.created_at), 'updated_at', us(w.updated_at)
    )
$$;

create or replace function webhooks() returns json language plpgsql set search_path from current as $$
begin
    return (select coalesce(json_agg(webhook_record(w) order by w.name), '[]') from workflow_webhook as w);
end $$;

-- Change only the version that was read. Messages for the webhook are checked.
create or replace function put_webhook(webhook json) returns boolean language plpgsql
set search_path from current as $$
#variable_conflict use_column
declare
    now timestamptz := clock();
    seen bigint := coalesce((webhook ->> 'rev')::bigint, 0);
begin
    if seen = 0 then
        insert into workflow_webhook (name, target, allow_private, created_at, updated_at)
        values (
            webhook ->> 'name', (webhook ->> 'target')::json,
            coalesce((webhook ->> 'allow_private')::boolean, false), now, now
        )
        on conflict (name) do nothing;
    else
        update workflow_webhook as w
        set target = (webhook ->> 'target')::json, rev = w.rev + 1, updated_at = now,
            allow_private = coalesce((webhook ->> 'allow_private')::boolean, false)
        where w.name = webhook ->> 'name' and w.rev = seen;
    end if;
    if found then
        perform hint();
        return true;
    end if;
    return false;
end $$;

create or replace function remove_webhook(name text) returns boolean language plpgsql
set search_path from current as $$
begin
    delete from workflow_webhook as w where w.name = remove_webhook.name;
    return found;
end $$;
