-- Accounts: budgets that a run shares with its children, and theirs. The run at the top has the account; a commit of any
-- run in it adds its cost to the account. Rows of accounts are locked after all rows of runs, by id, so that two commits
-- never wait for each other.

-- Return what is left of an account; null when the run at the top was purged.
create or replace function left_of(account uuid) returns bigint language plpgsql stable as $$
begin
    return (select a.budget - a.spent from workflow_account as a where a.id = account);
end $$;

-- The answer to an item, with what is left of the budget that the run shares, if its holder wants to know.
create or replace function with_left(answer json, item jsonb, account uuid) returns json language plpgsql stable as $$
begin
    return case when (item ->> 'shares')::boolean and answer ->> 'answer' = 'applied'
        then (answer::jsonb || jsonb_build_object('left', left_of(account)))::json else answer end;
end $$;

-- Lock accounts. Returns false when that takes too long.
create or replace function lock_accounts(accounts uuid[]) returns boolean language plpgsql as $$
begin
    perform 1 from workflow_account as a where a.id = any(accounts) order by a.id for no key update;
    return true;
exception when lock_not_available then
    return false;
end $$;

create or replace function charge(account uuid, cost bigint) returns void language plpgsql as $$
begin
    update workflow_account as a set spent = a.spent + cost where a.id = account;
end $$;

-- The account of a new run: that of its parent, or its own if its budget covers its children.
create or replace function account_of(run uuid, parent uuid, covers boolean, budget bigint) returns uuid
language plpgsql stable as $$
begin
    return coalesce(
        (select p.account from workflow_run as p where p.id = parent),
        case when covers and budget is not null then run end
    );
end $$;

-- Return who pauses a run before a step that may cost more than is left, as far as its budgets tell now; null: the step
-- can begin.
create or replace function short_of(r workflow_run, w writing, item jsonb) returns text language plpgsql stable as $$
declare
    needs bigint := greatest(1, (item ->> 'cost_max')::bigint);
begin
    if item ->> 'before' is null then
        return null;
    elsif r.cost + w.cost + needs > r.budget then
        return 'budget';
    elsif r.account is not null and left_of(r.account) < needs then
        return case when r.account = coalesce(r.chain, r.id) then 'budget' else 'budget of ' || r.account end;
    end if;
    return null;
end $$;

-- The data of the trail row of a pause. Before a step that may cost more than is left, it says so.
create or replace function paused_data(r workflow_run, w writing, item jsonb) returns text language plpgsql stable as $$
declare
    spent bigint := r.cost + w.cost;
    most bigint := r.budget;
begin
    if w.move <> 'release' or r.pause_asked_by is not null or short_of(r, w, item) is null then
        return '{"by":' || to_json(w.pause_by)::text || '}';
    end if;
    if (spent + greatest(1, (item ->> 'cost_max')::bigint) > most) is not true then
        select a.spent, a.budget into spent, most from workflow_account as a where a.id = r.account;
    end if;
    return json_build_object(
        'by', w.pause_by, 'step', item ->> 'before',
        'cost_max', (item ->> 'cost_max')::double precision / 1000000, 'cost', spent::double precision / 1000000,
        'budget', most::double precision / 1000000
    )::text;
end $$;

-- The runs of an account that are paused because its budget was spent.
create or replace function stopped_members(account uuid, lim integer) returns uuid[] language plpgsql stable as $$
begin
    return array(
        select m.id from workflow_run as m
        where m.account = stopped_members.account and m.status = 'paused'
            and m.pause_asked_by = 'budget of ' || stopped_members.account and m.deleted_at is null
        order by m.account, m.id limit lim
    );
end $$;

-- Resume a slice of the runs that were paused because the budget of this run was spent. A run with waits is left to the
-- next call if the topics that it looks at are not free.
create or replace function resume_members(r workflow_run, behind uuid, lim integer, now timestamptz) returns json
language plpgsql as $$
declare
    members uuid[] := stopped_members(r.account, lim);
    topics text[] := topics_to_look_at(members);
    got uuid[] := lock_some_waits(members || r.id, topics);
    resumed integer := 0;
    member workflow_run;
begin
    if (r.id = any(got)) is not true or not topics_to_look_at(members) <@ topics then
        return json_build_object('woken', 0, 'left', json_build_object('owing', r.id)::text);
    end if;
    for member in
        select m.* from workflow_run as m
        where m.id = any(stopped_members(r.account, lim)) and m.id = any(got) and m.id = any(members) order by m.id
    loop
        perform resume_run(member, 'budget of ' || r.account, now);
        resumed := resumed + 1;
    end loop;
    if stopped_members(r.account, 1) = '{}' then
        update workflow_run as w set owes = w.owes & ~32, rev = w.rev + 1 where w.id = r.id and w.owes & 32 > 0;
        resumed := resumed + 1;
    end if;
    if resumed > 0 then
        perform hint();
    end if;
    return json_build_object('woken', 0, 'left', json_build_object(
        'owing', case when resumed > 0 then behind else r.id end
    )::text);
end $$;
