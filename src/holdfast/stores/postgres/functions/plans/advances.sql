-- The fast path of plans: steps that are done, many at once. The current task has succeeded, and the next row is a task
-- that the holder goes on with, or there is none and the run has succeeded. Everything else (a gate, a wait, drift, a
-- pause, a cost, a holder that does not go on) is left out, untouched, and takes the general path of `advance`. No wait
-- is opened here, so no topic has to be locked.

create or replace function advance_rows(items json) returns table (
    run uuid, fence bigint, number integer, lasts double precision, key text, attempts integer, output text,
    result text, differs boolean, started_at bigint, begun_at bigint, in_place boolean, place bigint
) language plpgsql volatile rows 1 as $$
begin
    return query select * from rows from (json_to_recordset(items) as (
        run uuid, fence bigint, number integer, lasts double precision, key text, attempts integer, output text,
        result text, differs boolean, started_at bigint, begun_at bigint, in_place boolean
    )) with ordinality;
end $$;

-- Returns what was done: each item by its place in `items`, from 0, and the row that is current then (number, name and
-- attempts). The runs are locked first, under THE guard of every write of a holder. Their steps are read by the next
-- statement: append_step adds a row under the lock of the run, and the snapshot of the locking statement may be older.
-- The run row is not changed where nothing of it differs, as with a checkpoint: the item is known by its step, and its
-- answer is computed again from the row that follows (`went_on`). Each item carries what it needs, because a join of
-- two lists would cost the square of their length.
create or replace function commit_advances(items json, now timestamptz) returns json language plpgsql
set enable_sort = off as $$
declare
    held record;
    answer json;
begin
    select array_agg(h.run) as run, array_agg(h.fence) as fence, array_agg(h.number) as number,
        array_agg(h.lasts) as lasts, array_agg(h.key) as key, array_agg(h.attempts) as attempts,
        array_agg(h.output) as output, array_agg(h.result) as result, array_agg(h.started_at) as started_at,
        array_agg(h.begun_at) as begun_at, array_agg(h.in_place) as in_place, array_agg(h.place) as place,
        array_agg(h.changes) as changes
    into held
    from (
        select i.run, i.fence, i.number, i.lasts, i.key, i.attempts, i.output,
            case when i.differs then i.result else i.output end as result, i.started_at,
            case when r.started_fence <> r.fence then i.begun_at end as begun_at, coalesce(i.in_place, false) as in_place,
            i.place,
            i.begun_at is not null and r.started_fence <> r.fence or r.attempt <> 1 or r.crashes <> 0 or r.survived <> 0
                or (r.lease_until - now) * 3 < span(i.lasts) * 2 as changes
        from advance_rows(items) as i join workflow_run as r on r.id = any(array[i.run])
        where r.status || '' = 'leased' and r.fence = i.fence and r.lease_until >= now
            and r.pause_asked_by is null and r.kind = 'plan'
            and not (r.commit_fence = r.fence and r.commit_no >= i.number)
        for no key update of r skip locked
    ) as h;
    if held.run is null then
        return '[]';
    end if;
    with done as materialized (
        select i.*, c.spot, n.seq as next_seq, n.key as next_key, n.max_attempts as next_attempts
        from unnest(
            held.run, held.fence, held.number, held.lasts, held.key, held.attempts, held.output, held.result,
            held.started_at, held.begun_at, held.in_place, held.place, held.changes
        ) as i (
            run, fence, number, lasts, key, attempts, output, result, started_at, begun_at, in_place, place, changes
        )
        cross join lateral (
            select s.ctid as spot, s.seq, s.key, s.kind, s.status, s.fence, s.number from workflow_step as s
            where s.run_id = i.run and s.finished_at is null order by s.seq limit 1
        ) as c
        left join lateral (
            select s.seq, s.key, s.max_attempts, is_fresh_task(s) as is_fresh from workflow_step as s
            where s.run_id = i.run and s.seq > c.seq order by s.seq limit 1
        ) as n on true
        where c.key = i.key and c.kind = 'task' and c.status = 'pending'
            and not (c.fence = i.fence and c.number >= i.number)
            and (n.seq is null or i.in_place and n.is_fresh)
    ), recorded as (
        update workflow_step as s
        set status = 'succeeded', attempts = d.attempts, wake = null, output = d.output::json, error = null,
            fence = d.fence, number = d.number, started_at = moment(d.started_at), finished_at = now
        from done as d where s.ctid = d.spot
    ), stayed as (
        update workflow_run as r
        set attempt = 1, crashes = 0, survived = 0,
            lease_until = case when (r.lease_until - now) * 3 < span(d.lasts) * 2 then now + span(d.lasts)
                else r.lease_until end,
            started_fence = case when d.begun_at is null then r.started_fence else r.fence end,
            started_at = coalesce(r.started_at, moment(d.begun_at)), commit_fence = r.fence, commit_no = d.number,
            commit_answer = goes_on_with(d.next_seq, d.next_key, d.next_attempts), updated_at = now, rev = r.rev + 1
        from done as d where d.next_seq is not null and d.changes and r.id = any(array[d.run])
    ), ended as (
        update workflow_run as r
        set status = 'succeeded', result = d.result::json, error = null, last_error = null, finished_at = now,
            expires_at = now + span(r.ttl_seconds), leased_by = null, lease_until = null, attempt = 1, crashes = 0,
            owes = case when r.parent_step is null then r.owes else r.owes | 1 end,
            started_fence = case when d.begun_at is null then r.started_fence else r.fence end,
            started_at = coalesce(r.started_at, moment(d.begun_at)), commit_fence = r.fence, commit_no = d.number,
            commit_answer = '{"answer":"applied","status":"succeeded"}', updated_at = now, rev = r.rev + 1
        from done as d where d.next_seq is null and r.id = any(array[d.run])
    ), trail_rows as (
        insert into workflow_event (workflow_id, event_type, data, created_at, told)
        select t.run, t.what, t.data::json, now, false
        from (
            select d.run, 'started' as what, '{"at":' || d.begun_at || '}' as data, 0 as rank
            from done as d where d.begun_at is not null
            union all
            select d.run, 'step_succeeded', '{"step":' || to_json(d.key)::text || '}', 1 from done as d
            union all
            select d.run, 'succeeded', '{}', 2 from done as d where d.next_seq is null
        ) as t order by t.run, t.rank
    )
    select json_agg(json_build_array(d.place - 1, d.next_seq, d.next_key, d.next_attempts)) into answer from done as d;
    return coalesce(answer, '[]');
end $$;

-- The verdict for a holder that goes on with a task that has not begun.
create or replace function goes_on_with(seq integer, key text, max_attempts integer) returns text language sql stable
as $$
    select '{"answer":"applied","status":"leased","settled":[{"seq":' || seq || ',"key":' || to_json(key)::text
        || ',"kind":"task","status":"pending","max_attempts":' || coalesce(max_attempts::text, 'null') || '}]}'
$$;

-- The verdict for the item that wrote a step, if the run row does not store it: the plan went on from there in place,
-- and the facts about the next row never change. Null for steps of code.
create or replace function went_on(r workflow_run, s workflow_step) returns text language plpgsql stable
set enable_sort = off as $$
begin
    return case when r.kind = 'plan' and s.status = 'succeeded' and (r.commit_fence, r.commit_no) < (s.fence, s.number) then (
        select goes_on_with(n.seq, n.key, n.max_attempts) from workflow_step as n
        where n.run_id = r.id and n.seq > s.seq order by n.seq limit 1
    ) end;
end $$;
