-- Budgets that cover children, and runs that repeat another.

alter table workflow_run
    add column account uuid,  -- the run at the top whose budget covers it, perhaps itself; of a chain the first one
    add column origin uuid;   -- the run that it repeats

create index idx_workflow_run_account on workflow_run (account, id) where account is not null and status = 'paused';

-- A budget that a run shares with its children. Commits with a cost add to it, so the row is changed often.
create table workflow_account (
    id     uuid primary key,
    budget bigint not null,
    spent  bigint not null default 0
) with (fillfactor = 50);

alter table workflow_definition add column covers_children boolean default false;
