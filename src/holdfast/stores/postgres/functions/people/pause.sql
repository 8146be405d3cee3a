-- Pause a run. A paused run is left as it is. The holder of a leased run learns of the pause at its next boundary; the
-- first person who asked is named.
create or replace function pause(run uuid, tenant text, who text, since bigint default null) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    r workflow_run := locked_run(run, tenant, false);
begin
    perform refuse_changed(r, since);
    perform refuse_away(r, 'pause');
    if r.status not in ('pending', 'leased', 'waiting', 'paused') then
        perform refuse_move(r.id, 'pause', r.status);
    end if;
    if r.status in ('pending', 'waiting') then
        update workflow_run as w set resume_to = w.status, status = 'paused', pause_asked_by = who, updated_at = now,
            rev = w.rev + 1
        where w.id = r.id;
        perform note(r.id, 'paused', json_build_object('by', who)::text, now);
    elsif r.status = 'leased' and r.pause_asked_by is null then
        update workflow_run as w set pause_asked_by = who, rev = w.rev + 1 where w.id = r.id;
    end if;
    perform hint_after(r.status);
    return shown(r.id);
end $$;
