-- Plans, gates and children. What a row of a plan begins with stands in the row: after the start only the
-- database decides.
alter table workflow_step add column timeout_seconds real;
alter table workflow_step add column ask text;         -- approval: the question and what is shown with it
alter table workflow_step add column digest text;      -- approval: of what is shown
alter table workflow_step add column on_timeout text;  -- approval: reject or approve
alter table workflow_step add column child_id text;
alter table workflow_step add column wake text;        -- a plan's task that has waited: why it is called again
alter table workflow_step add column waits integer not null default 0;

-- Open gates, of one tenant and of all.
create index idx_workflow_step_approval on workflow_step (tenant, run_id, seq)
    where kind = 'approval' and status = 'waiting' and finished_at is null;
create index idx_workflow_step_any_approval on workflow_step (run_id, seq)
    where kind = 'approval' and status = 'waiting' and finished_at is null;

-- What is due, but for the tasks and awaited events of plans, which a keeper may leave alone.
create index idx_workflow_step_due_but_plans on workflow_step (due_at)
    where status = 'waiting' and due_at is not null and kind <> 'child' and kind <> 'task'
        and (kind <> 'event' or timeout_seconds is null);

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
create index idx_workflow_outbox_tenant_due on workflow_outbox (sink, tenant, next_at, seq)
    where status = 'pending' and behind = 0;
create index idx_workflow_outbox_line on workflow_outbox (tenant, sink, key, seq)
    where status = 'pending' and key is not null;
create index idx_workflow_outbox_left on workflow_outbox (seq) where status <> 'sent';

create table workflow_webhook (
    name          text primary key,
    target        text not null,
    allow_private integer not null default 0,
    rev           integer not null default 1,
    created_at    integer not null,
    updated_at    integer not null
) strict, without rowid;

alter table workflow_worker add column sinks text not null default '[]';
alter table workflow_worker add column lacking text not null default '{}';  -- by plan, the tasks without a handler

-- Schedules. Nothing has ever written to the table of that name: it is made anew, for a score of added columns
-- would cost every new file more than all its tables do.
drop table workflow_schedule;

create table workflow_schedule (
    tenant          text not null default 'default',
    name            text not null,
    id              text not null unique,        -- another one when it is removed and made again
    type            text not null,
    payload         text not null default 'null',
    cron            text,
    zone            text not null default 'UTC',
    every_us        integer,
    anchor_at       integer not null default 0,  -- what every_us counts from
    jitter_us       integer not null default 0,
    overlap         text not null default 'skip' check (overlap in ('skip', 'allow', 'queue')),
    catch_up        text not null default 'one' check (catch_up in ('none', 'one', 'all')),
    priority        integer not null default 100,
    max_attempts    integer,
    timeout_seconds real,
    ttl_seconds     real,
    budget          integer,
    limit_key       text,
    labels          text,
    paused          integer not null default 0,
    paused_by       text,
    next_at         integer,
    waiting         text,                        -- times in line, a JSON array; null: none
    fired           integer not null default 0,
    skipped         integer not null default 0,
    last_at         integer,
    last_run        text,
    last_skipped_at integer,
    last_missed_at  integer,
    rev             integer not null default 1,
    created_at      integer not null,
    updated_at      integer not null,
    primary key (tenant, name)
) strict, without rowid;

create index idx_workflow_schedule_next on workflow_schedule (next_at) where paused = 0 and next_at is not null;
create index idx_workflow_schedule_waiting on workflow_schedule (id) where waiting is not null;

-- The runs that a schedule has to know of, but for those that were seen to have ended. One whose runs may go
-- beside each other has none here.
create table workflow_firing (
    schedule_id text not null,
    run_id      text not null,
    primary key (schedule_id, run_id)
) strict, without rowid;

-- Registry and limits. Runs of a tenant and type apart by limit_key, so that those of a full key are not walked
-- over one by one; those that have a key in the order of the queue too.
alter table workflow_worker add column runtime text not null default 'python';

drop index idx_workflow_run_tenant_claim;
create index idx_workflow_run_tenant_claim on workflow_run (type, tenant, limit_key, priority, run_at, id)
    where status = 'pending' and deleted_at is null;
create index idx_workflow_run_keyed_claim on workflow_run (tenant, type, priority, run_at, id)
    where status = 'pending' and deleted_at is null and limit_key is not null;
create index idx_workflow_run_keyed_lease on workflow_run (limit_key) where status = 'leased' and limit_key is not null;

create table workflow_limit (
    scope        text not null check (scope = 'type' or scope = 'tenant' or scope = 'key'),
    name         text not null,                 -- one that ends in % speaks for each name with that prefix
    concurrency  integer,
    rate         integer,
    period       integer,                       -- microseconds
    weight       real,
    paused_until integer,
    updated_at   integer not null,
    primary key (scope, name),
    check ((rate is null) = (period is null))
) strict, without rowid;

-- The claims that a rate counts. `number` counts them on, so that a window is two looks, however much is in it.
create table workflow_limit_use (
    scope   text not null,
    name    text not null,
    at      integer not null,
    number  integer not null,
    taken   integer not null,
    gone_at integer not null,                   -- when it does not count any more
    primary key (scope, name, at)
) strict, without rowid;

create index idx_workflow_limit_use_gone on workflow_limit_use (gone_at);

-- Turns, where tenants have weights: a book for each kind of worker, and in it the place of each tenant that waits.
create table workflow_limit_book (
    id      integer primary key,
    asks    text not null unique,               -- types, tenants and runtime that such a worker asks for, in JSON
    passed  integer not null,                   -- the place that was served last
    used_at integer not null
) strict;

create table workflow_limit_place (
    book   integer not null,
    tenant text not null,
    at     integer not null,
    primary key (book, tenant)
) strict, without rowid;

-- One row. `mark` is null where no limit and no registry entry is set; it changes with each change of them, by
-- chance, so that what was undone is never taken for what came after it.
create table workflow_limit_mark (
    id   integer primary key check (id = 1),
    mark integer
) strict;

insert into workflow_limit_mark (id, mark)
values (1, iif(exists (select 1 from workflow_registry), random(), null));

create trigger workflow_limit_inserted after insert on workflow_limit begin
    update workflow_limit_mark set mark = random() where id = 1;
end;
create trigger workflow_limit_updated after update on workflow_limit begin
    update workflow_limit_mark set mark = random() where id = 1;
end;
create trigger workflow_limit_deleted after delete on workflow_limit begin
    update workflow_limit_mark
    set mark = iif(exists (select 1 from workflow_limit) or exists (select 1 from workflow_registry), random(), null)
    where id = 1;
end;
create trigger workflow_registry_inserted after insert on workflow_registry begin
    update workflow_limit_mark set mark = random() where id = 1;
end;
create trigger workflow_registry_updated after update on workflow_registry begin
    update workflow_limit_mark set mark = random() where id = 1;
end;
create trigger workflow_registry_deleted after delete on workflow_registry begin
    update workflow_limit_mark
    set mark = iif(exists (select 1 from workflow_limit) or exists (select 1 from workflow_registry), random(), null)
    where id = 1;
end;
