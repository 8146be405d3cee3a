-- What the verbs of people share: each locks the run, looks whether it may, moves it, and shows it as it is then.

-- The present run of the chain that a run is in, for oneself, and before it the first one: while that is held, the chain does
-- not go on. `deleted`: one that can still be restored too.
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

-- The run of this id, if it is the present one of its chain: what was before stays as it is.
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

create or replace function shown(run uuid) returns json language plpgsql stable as $$
declare
    r workflow_run;
begin
    select w.* into strict r from workflow_run as w where w.id = shown.run;
    return run_record(r);
end $$;
