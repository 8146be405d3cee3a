-- Retry a failed run. The step that made it fail, and the steps that ended with it, are forgotten; for a plan, its
-- current step.
create or replace function retry_run(run uuid, tenant text, who text, since bigint default null) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    r workflow_run;
    blamed text;
    gone text[];
begin
    perform lock_plan(run);
    r := locked_itself(run, tenant, 'retry_run');
    perform refuse_away(r, 'retry_run');
    perform refuse_changed(r, since);
    if r.status not in ('failed') then
        perform refuse_move(run, 'retry_run', r.status);
    end if;
    if r.kind = 'plan' then
        select c.key into blamed from current_step(run) as c;
    end if;
    blamed := coalesce(blamed, blamed_step(r.error));
    gone := array(select b.key from begun(r) as b where b.key = blamed or b.status = 'cancelled' order by b.seq);
    r := begin_anew(r, gone, true, now);
    perform note(run, 'retried', json_build_object('by', who, 'status', r.status, 'forgotten', gone)::text, now);
    perform go_on_anew(r, now);
    perform hint();
    return shown(run);
end $$;

-- The name of the step in an error, in whatever form the error was written.
create or replace function blamed_step(error json) returns text language sql immutable as $$
    select case when json_typeof(error) = 'object' and json_typeof(error -> 'step') = 'string' then error ->> 'step' end
$$;
