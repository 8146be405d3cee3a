-- Change the priority. It counts whenever the run is in the queue, now or later. The holder of a leased run goes on.
create or replace function set_priority(run uuid, priority integer, tenant text, who text) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    wanted integer := checked_priority(coalesce(set_priority.priority, -1));
    r workflow_run := locked_run(run, tenant, false);
begin
    perform refuse_away(r, 'reprioritize');
    if r.status not in ('pending', 'leased', 'waiting', 'paused') then
        perform refuse_move(r.id, 'reprioritize', r.status);
    end if;
    if r.priority <> wanted then
        update workflow_run as w set priority = wanted, updated_at = now, rev = w.rev + 1 where w.id = r.id;
        perform note(r.id, 'reprioritized', json_build_object('by', who, 'priority', wanted)::text, now);
    end if;
    perform hint();
    return shown(r.id);
end $$;
