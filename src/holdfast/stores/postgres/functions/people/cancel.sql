-- Cancel a run. A cancelled run is left as it is.
create or replace function cancel(
    run uuid, tenant text, who text, with_children boolean, since bigint default null
) returns json language plpgsql
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    now timestamptz := clock();
    r workflow_run := locked_run(run, tenant, false);
begin
    perform refuse_changed(r, since);
    perform refuse_away(r, 'cancel');
    if r.status not in ('pending', 'leased', 'waiting', 'paused', 'cancelled') then
        perform refuse_move(r.id, 'cancel', r.status);
    end if;
    if r.status <> 'cancelled' then
        perform cancel_run(r, who, with_children, now);
        perform hint_after(r.status);
    end if;
    return shown(r.id);
end $$;

-- Cancel an open run whose row is locked, deleted or not. Its debts are carried out afterwards: its parent is told, and
-- its open children are cancelled too.
create or replace function cancel_run(r workflow_run, who text, with_children boolean, now timestamptz) returns void
language plpgsql as $$
begin
    perform end_steps(r, 'cancelled', null, 0, now);
    update workflow_run as w
    set status = 'cancelled', fence = w.fence + 1, leased_by = null, lease_until = null, pause_asked_by = null,
        resume_to = null, waiting_on = null, wait_topic = null, deadline_at = null, finished_at = now,
        expires_at = now + span(w.ttl_seconds),
        owes = w.owes | case when w.parent_step is null then 0 else 1 end | case when with_children and exists (
            select 1 from workflow_run as child where child.parent_id = r.id and child.finished_at is null
        ) then 2 else 0 end,
        updated_at = now, rev = w.rev + 1
    where w.id = r.id;
    perform note(r.id, 'cancelled', json_build_object('by', who)::text, now);
end $$;
