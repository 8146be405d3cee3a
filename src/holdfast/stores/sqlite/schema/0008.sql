-- Budgets that cover children, and runs that repeat another.
--
-- `account` takes the place of a column that no release since 0006 reads or writes: it stands before the large values,
-- where reads of it cost nothing.

update workflow_run set cursor = null where cursor is not null;
-- A rename checks every view and trigger in the file, and fails when one of a user is broken. With a writable schema, it
-- leaves those as they are.
pragma writable_schema = on;
alter table workflow_run rename column cursor to account;
pragma writable_schema = off;

create table workflow_account (
    id     text primary key,
    budget integer not null,
    spent  integer not null default 0
) strict, without rowid;

create table workflow_origin (
    run_id text primary key,
    origin text not null
) strict, without rowid;

create index idx_workflow_run_account on workflow_run (account, id) where account is not null and status = 'paused';

alter table workflow_definition add column covers_children integer not null default 0;
