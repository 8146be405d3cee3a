-- Show a deleted run again, in the state that it has by now. Nobody holds a deleted run. A run that is not deleted is
-- left as it is.
create or replace function restore(run uuid, tenant text, who text) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    r workflow_run := locked_run(run, tenant, true);
begin
    if r.deleted_at is not null
        and r.status in ('pending', 'waiting', 'paused', 'succeeded', 'failed', 'cancelled') then
        update workflow_run as w set deleted_at = null, updated_at = now, rev = w.rev + 1 where w.id = r.id;
        perform note(r.id, 'restored', json_build_object('by', who)::text, now);
        perform hint();
    end if;
    update workflow_run as w set deleted_at = null, owes = w.owes | 16, updated_at = now, rev = w.rev + 1
    where w.id = r.chain and w.deleted_at is not null;
    if found then
        perform note(r.chain, 'restored', json_build_object('by', who)::text, now);
    end if;
    return shown(r.id);
end $$;
