-- Plans, gates and children. What a row of a plan begins with stands in the row: after the start only the
-- database decides.
alter table workflow_step add column timeout_seconds real;
alter table workflow_step add column ask text;         -- approval: the question and what is shown with it
alter table workflow_step add column digest text;      -- approval: of what is shown
alter table workflow_step add column on_timeout text;  -- approval: reject or approve
alter table workflow_step add column child_id text;
alter table workflow_step add column wake text;        -- a plan's task that has waited: why it is called again
alter table workflow_step add column waits integer not null default 0;

create index idx_workflow_step_approval on workflow_step (run_id, seq)
    where kind = 'approval' and status = 'waiting' and finished_at is null;

alter table workflow_run add column parent_step text;
-- What its last commit has promised and `deliver` carries out: 1 tell the parent of its end, 2 cancel its
-- children, 4 cancel those of them that no step of its waits for or has started any more.
alter table workflow_run add column owes integer not null default 0;

create index idx_workflow_run_parent on workflow_run (parent_id) where parent_id is not null;
create index idx_workflow_run_owes on workflow_run (id) where owes > 0;

alter table workflow_definition add column budget integer;

-- The outbox. Messages of one tenant, sink and key form a line; all but its first are behind, and only what is not
-- behind stands in the index of what is due: however long a line is that cannot go on, nobody walks along it.
alter table workflow_outbox add column tenant text not null default 'default';
alter table workflow_outbox add column behind integer not null default 0;
alter table workflow_outbox add column fence integer not null default 0;
alter table workflow_outbox add column held_by text;
alter table workflow_outbox add column tried_at integer;

create index idx_workflow_outbox_due on workflow_outbox (sink, next_at, seq) where status = 'pending' and behind = 0;
create index idx_workflow_outbox_line on workflow_outbox (tenant, sink, key, seq)
    where status = 'pending' and key is not null;
create index idx_workflow_outbox_left on workflow_outbox (seq) where status <> 'sent';

create table workflow_webhook (
    name          text primary key,
    target        text not null,
    allow_private integer not null default 0,
    created_at    integer not null,
    updated_at    integer not null
) strict, without rowid;

alter table workflow_worker add column sinks text not null default '[]';
