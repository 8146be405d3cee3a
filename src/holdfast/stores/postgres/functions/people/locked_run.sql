-- Shared by the verbs of people: each locks the run, checks that the move is legal, moves it, and returns the run as it
-- is then.

-- Lock the present run of the chain that a run is in, and before it the first run: while the first row is locked, the
-- chain cannot continue. `deleted`: also return a run that can still be restored.
create or replace function locked_run(run uuid, tenant text, deleted boolean) returns workflow_run
language plpgsql as $$
declare
    head uuid := chain_of(locked_run.run);
    r workflow_run;
begin
    select w.* into r from workflow_run as w
    where w.id = head and (locked_run.tenant is null or w.tenant = locked_run.tenant)
        and (w.deleted_at is null or locked_run.deleted and w.deleted_at > '-infinity')
    for no key update;
    if r.present is not null then
        select w.* into r from workflow_run as w where w.id = r.present for no key update;
    end if;
    if r.id is null then
        perform refuse_unknown(locked_run.run);
    end if;
    return r;
end $$;

-- Lock the run with this id, if it is the present run of its chain; earlier runs of a chain cannot be changed.
create or replace function locked_itself(run uuid, tenant text, move text) returns workflow_run language plpgsql as $$
declare
    r workflow_run := locked_run(run, tenant, false);
begin
    if r.id <> locked_itself.run then
        perform refuse_move(locked_itself.run, move, w.status, 'its chain has gone on: the present run is ' || r.id)
        from workflow_run as w where w.id = locked_itself.run;
    end if;
    return r;
end $$;

-- Refuse a run that has changed at this instant or later; null refuses nothing. For a leased run only its claim, and the
-- withdrawal of a pause, count: what its holder records meanwhile does not.
create or replace function refuse_changed(r workflow_run, since bigint) returns void language plpgsql as $$
begin
    if since is not null and coalesce(case when r.status = 'leased' then (
        select e.created_at from workflow_event as e
        where e.workflow_id = r.id and e.event_type in ('leased', 'resumed') order by e.id desc limit 1
    ) else greatest(r.updated_at, (
        select e.created_at from workflow_event as e where e.workflow_id = r.id order by e.id desc limit 1
    )) end, r.updated_at) >= moment(since) then
        perform refuse('ChangedSince', 'run ' || r.id || ' has changed', json_build_object('run', r.id));
    end if;
end $$;

create or replace function shown(run uuid) returns json language plpgsql stable as $$
declare
    r workflow_run;
begin
    select w.* into strict r from workflow_run as w where w.id = shown.run;
    return run_record(r);
end $$;
