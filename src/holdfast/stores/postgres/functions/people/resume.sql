create or replace function resume(run uuid, tenant text, who text) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    r workflow_run;
begin
    perform lock_waits(array[chain_of(run)]);
    r := locked_run(run, tenant, false);
    if r.status not in ('paused', 'leased') then
        perform refuse_move(r.id, 'resume', r.status);
    end if;
    if r.status = 'leased' and r.pause_asked_by is null then
        perform refuse_move(r.id, 'resume', r.status, 'no pause is asked for');
    end if;
    if r.status = 'leased' then
        update workflow_run as w set pause_asked_by = null, rev = w.rev + 1 where w.id = r.id;
    elsif r.kind = 'plan' then
        perform resume_plan(r, who, now);
    else
        update workflow_run as w set status = w.resume_to, resume_to = null, updated_at = now, rev = w.rev + 1
        where w.id = r.id;
        perform note(r.id, 'resumed', json_build_object('by', who, 'status', r.resume_to)::text, now);
    end if;
    perform hint_after(r.status);
    return shown(r.id);
end $$;

-- Resume a plan by its rows: decisions that were made meanwhile count, and the current row is opened if it is not open
-- yet.
create or replace function resume_plan(r workflow_run, who text, now timestamptz) returns void language plpgsql as $$
declare
    entry bigint := note(r.id, 'resumed', json_build_object('by', who)::text, now);
    found workflow_step;
    status text;
begin
    r.status := r.resume_to;
    found := come_to(r, null, now);
    status := apply_plan(r, found, now, null, true);
    perform lead_to(entry, case when status in ('succeeded', 'failed') then 'pending' else status end);
end $$;
