-- Hide a run, in the state that it has. A deleted run is left as it is. A leased run is given back as if by its holder:
-- a pause that was asked for is kept.
create or replace function delete(run uuid, tenant text, who text, since bigint default null) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    r workflow_run := locked_run(run, tenant, true);
begin
    perform refuse_changed(r, since);
    if r.status not in ('pending', 'leased', 'waiting', 'paused', 'succeeded', 'failed', 'cancelled') then
        perform refuse_move(r.id, 'delete', r.status);
    end if;
    if r.deleted_at is null and r.status = 'leased' then
        perform delete_leased(r, who, now);
    elsif r.deleted_at is null then
        update workflow_run as w set deleted_at = now, updated_at = now, rev = w.rev + 1 where w.id = r.id;
        perform note(r.id, 'deleted', json_build_object('by', who)::text, now);
    end if;
    -- In a chain, delete the present run and the first one. The first one owes the same to all others.
    update workflow_run as w set deleted_at = now, owes = w.owes | 16, updated_at = now, rev = w.rev + 1
    where w.id = r.chain and w.deleted_at is null;
    if found then
        perform note(r.chain, 'deleted', json_build_object('by', who)::text, now);
    end if;
    perform hint_after(case when r.deleted_at is null then r.status end);
    return shown(r.id);
end $$;

create or replace function delete_leased(r workflow_run, who text, now timestamptz) returns void language plpgsql as $$
begin
    update workflow_run as w
    set deleted_at = now, status = case when w.pause_asked_by is null then 'pending' else 'paused' end,
        resume_to = case when w.pause_asked_by is not null then 'pending' end, leased_by = null, lease_until = null,
        run_at = now, fence = w.fence + 1, attempt = greatest(0, w.attempt - 1),
        updated_at = now, rev = w.rev + 1
    where w.id = r.id;
    perform note(r.id, 'deleted', json_build_object('by', who, 'status', 'pending')::text, now);
    if r.pause_asked_by is not null then
        perform note(r.id, 'paused', json_build_object('by', r.pause_asked_by)::text, now);
    end if;
end $$;
