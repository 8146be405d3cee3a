-- Let a paused run go on, or withdraw a pause that was asked for; set its new budget in the same commit.
create or replace function resume(
    run uuid, tenant text, who text, budget bigint default null, since bigint default null
) returns json
language plpgsql set search_path from current as $$
declare
    now timestamptz := clock();
    r workflow_run;
begin
    perform lock_waits(array[chain_of(run)]);
    r := locked_run(run, tenant, false);
    perform refuse_changed(r, since);
    perform refuse_away(r, 'resume');
    if r.status not in ('paused', 'leased')
        and (budget is null or r.status not in ('pending', 'leased', 'waiting', 'paused')
             and r.account is distinct from coalesce(r.chain, r.id)) then
        perform refuse_move(r.id, 'resume', r.status);
    end if;
    if r.status = 'leased' and r.pause_asked_by is null and budget is null then
        perform refuse_move(r.id, 'resume', r.status, 'no pause is asked for');
    end if;
    perform renew_budget(r, who, budget, now);
    if r.status = 'leased' then
        update workflow_run as w set pause_asked_by = null, updated_at = now, rev = w.rev + 1 where w.id = r.id;
        if r.pause_asked_by is not null then
            perform note(r.id, 'resumed', json_build_object('by', who, 'status', r.status)::text, now);
        end if;
    elsif r.status = 'paused' then
        perform resume_run(r, who, now);
    end if;
    perform hint_after(r.status);
    return shown(r.id);
end $$;

-- Set the new budget, which must be above what is spent. A paused run that its budget has stopped needs one. The budget of
-- the run at the top is also that of its account; the run then owes the resume of the runs that were paused for it.
create or replace function renew_budget(r workflow_run, who text, budget bigint, now timestamptz) returns void
language plpgsql as $$
declare
    is_top boolean := coalesce(r.account = coalesce(r.chain, r.id), false);
    spent bigint := r.cost;
    most bigint := r.budget;
    a workflow_account;
begin
    if r.account is not null then
        select * into a from workflow_account as x where x.id = r.account for no key update;
    end if;
    if a.id is not null and not is_top and r.status = 'paused' and a.spent >= a.budget then
        perform refuse_move(r.id, 'resume', r.status, 'run ' || a.id || ', whose budget covers it, has spent '
            || amount(a.spent) || ' of ' || amount(a.budget) || ': resume that run with a higher budget');
    end if;
    if a.id is not null and is_top then
        spent := a.spent;
        most := a.budget;
    end if;
    if budget is null then
        if r.status = 'paused' and most is not null and (spent >= most or r.pause_asked_by = 'budget') then
            perform refuse_move(r.id, 'resume', r.status, 'it has spent ' || amount(spent) || ' of its budget of '
                || amount(most) || ': resume it with a higher budget (budget=, --budget)');
        end if;
        return;
    end if;
    if budget < 1 or budget > 1000000000000000 then
        perform refuse('UsageError', 'budget ' || budget || ': 1 to 1000000000000000');
    end if;
    if budget <= spent then
        perform refuse_move(r.id, 'resume', r.status,
            'it has spent ' || amount(spent) || ': a budget of ' || amount(budget) || ' is too low');
    end if;
    if r.budget is distinct from budget then
        update workflow_run as w set budget = renew_budget.budget, updated_at = now, rev = w.rev + 1 where w.id = r.id;
        perform note(r.id, 'budget_set',
                     json_build_object('by', who, 'budget', budget::double precision / 1000000)::text, now);
    end if;
    if a.id is not null and is_top then
        update workflow_account as x set budget = renew_budget.budget where x.id = a.id;
        update workflow_run as w set owes = w.owes | 32, rev = w.rev + 1 where w.id = r.id;
    end if;
end $$;

-- A cost for people: with two decimals, or as many as it has.
create or replace function amount(units bigint) returns text language plpgsql immutable as $$
declare
    rest text := rtrim(lpad((units % 1000000)::text, 6, '0'), '0');
begin
    return units / 1000000 || '.' || rpad(rest, greatest(2, length(rest)), '0');
end $$;

-- Let a paused run go on.
create or replace function resume_run(r workflow_run, who text, now timestamptz) returns void language plpgsql as $$
begin
    if r.kind = 'plan' then
        perform resume_plan(r, who, now);
        return;
    end if;
    update workflow_run as w
    set status = w.resume_to, resume_to = null, pause_asked_by = null, updated_at = now, rev = w.rev + 1
    where w.id = r.id;
    perform note(r.id, 'resumed', json_build_object('by', who, 'status', r.resume_to)::text, now);
end $$;

-- Resume a plan by its rows: decisions that were made meanwhile count, and the current row is opened if it is not open
-- yet.
create or replace function resume_plan(r workflow_run, who text, now timestamptz) returns void language plpgsql as $$
declare
    entry bigint := note(r.id, 'resumed', json_build_object('by', who)::text, now);
    found workflow_step;
    status text;
begin
    update workflow_run as w set pause_asked_by = null, rev = w.rev + 1 where w.id = r.id;
    r.status := r.resume_to;
    r.pause_asked_by := null;
    found := come_to(r, null, now);
    status := apply_plan(r, found, now, null, true);
    perform lead_to(entry, case when status in ('succeeded', 'failed') then 'pending' else status end);
end $$;
