-- Runs as the verbs would have left them: a part of one kind. For this session only.
create function pg_temp.put_in(kind integer, name text, state text, low integer, high integer) returns void
language plpgsql as $$
declare
    now timestamptz := clock();
    begun integer := case when state = 'pending' then 0 else 1 end;
begin
    insert into workflow_run (
        id, tenant, type, payload, status, priority, run_at, attempt, max_attempts, fence, started_fence,
        waiting_on, deadline_at, result, rev, created_at, updated_at, started_at, finished_at
    )
    select pg_temp.id_of(kind, n), case when n % 50 = 0 then 'default' else 'tenant-' || n % 50 end,
        'bench.many_runs' || case name when 'later' then n % 10 when 'other' then 10 + n % 10 else n % 20 end || '.v1',
        '{"x":1}', state, case when name = 'later' and n % 20 < 10 then 10 else 100 end,
        now + case when name = 'later' then interval '30 days' else interval '-1 day' end + n * interval '1 ms',
        begun, 3, begun, begun, case when state = 'waiting' then 'sleep' end,
        case when state = 'waiting' then now + interval '30 days' + n * interval '1 ms' end,
        case when state = 'succeeded' then '{"ok":true}'::json end, 1, now, now,
        case when begun = 1 then now end, case when state = 'succeeded' then now + n * interval '1 us' end
    from generate_series(low, high) as n;
    if begun = 1 then
        insert into workflow_step (
            run_id, seq, key, kind, status, attempts, output, due_at, fence, number, started_at, finished_at
        )
        select pg_temp.id_of(put_in.kind, n), 1, 'first', case when state = 'waiting' then 'sleep' else 'task' end,
            state, 1, case when state = 'succeeded' then '{"i":1}'::json end,
            case when state = 'waiting' then now + interval '30 days' + n * interval '1 ms' end, 1, 1, now,
            case when state = 'succeeded' then now end
        from generate_series(low, high) as n;
    end if;
    insert into workflow_event (workflow_id, event_type, data, created_at, told)
    select pg_temp.id_of(kind, n), what, '{}', now, false
    from generate_series(low, high) as n
    cross join unnest(case when begun = 1 then array['created', 'leased'] else array['created'] end) as what;
end $$;

create function pg_temp.id_of(kind integer, number integer) returns uuid language sql immutable as $$
    select (lpad(to_hex(kind), 8, '0') || lpad(to_hex(number), 24, '0'))::uuid
$$;
