-- What the verbs of people share: each locks the run, looks whether it may, moves it, and shows it as it is then.

-- The row of one run for oneself. `deleted`: one that can still be restored too.
create or replace function locked_run(run uuid, tenant text, deleted boolean) returns workflow_run
language plpgsql as $$
declare
    r workflow_run;
begin
    select w.* into r from workflow_run as w
    where w.id = locked_run.run and (locked_run.tenant is null or w.tenant = locked_run.tenant)
        and (w.deleted_at is null or locked_run.deleted and w.deleted_at > '-infinity')
    for no key update;
    if not found then
        perform refuse_unknown(locked_run.run);
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
