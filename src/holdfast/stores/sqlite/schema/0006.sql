-- Runs, steps and schedules in tables with a rowid, and their large values last. In a table without one every search
-- reads each large row that it passes from its first byte to its last, whoever's it is: beside a hundred runs of 12 MB
-- a small one took 18 s. And what stands behind a large value is found only by walking through it.
-- Such a table appended its primary key to every index; here the indexes name what they are read by.
-- The lists of statuses are written with `or` for the reason that 0001.sql gives.

create table workflow_run_new (
    id              text primary key check (length(id) = 36),
    tenant          text not null default 'default',
    type            text not null,
    kind            text not null default 'code',
    status          text not null default 'pending'
                    check (status = 'pending' or status = 'leased' or status = 'succeeded' or status = 'waiting'
                           or status = 'paused' or status = 'failed' or status = 'cancelled'),
    priority        integer not null default 100,
    run_at          integer not null,
    idempotency_key text,                        -- other tenants': tenant, U+001F, key
    digest          text not null default '',
    attempt         integer not null default 0,
    max_attempts    integer not null default 3,
    crashes         integer not null default 0,
    max_crashes     integer not null default 4,
    leased_by       text,
    lease_until     integer,
    fence           integer not null default 0,
    commit_fence    integer not null default 0,  -- the last commit that is recorded on this row,
    commit_no       integer not null default 0,  -- its number
    commit_answer   text,                        -- and its verdict, for when it is sent again
    started_fence   integer not null default 0,  -- the execution whose `started` is in the trail
    waiting_on      text,                        -- kind, topic and time of the first due open wait,
    wait_topic      text,                        -- for people; the steps are the truth
    deadline_at     integer,
    resume_to       text check (resume_to = 'pending' or resume_to = 'waiting'),
    pause_asked_by  text,
    cursor          text,
    step_mark       integer not null default 0,  -- the highest step number that was ever forgotten
    parent_id       text,
    parent_step     text,
    owes            integer not null default 0,  -- 1 tell the parent, 2 cancel its children, 4 those that nobody awaits
    limit_key       text,
    cost            integer not null default 0,
    budget          integer,
    trace           text,
    timeout_seconds real,
    timeout_at      integer,
    ttl_seconds     real,
    expires_at      integer,
    inbox_mark      integer not null default 0,  -- the newest event there was when the run was started
    rev             integer not null default 0,
    created_at      integer not null,
    updated_at      integer not null,
    started_at      integer,
    finished_at     integer,
    deleted_at      integer,
    survived        integer not null default 0,  -- 1: it executed for a lease time, its crashes were forgiven, once
    tried_of        integer,                     -- of one that failed by a step: how many tries that had
    chain           text,                        -- the first run of its chain, if that is another one
    present         text,                        -- of a first run: the run that its chain has come to
    labels          text,
    progress        text,
    last_error      text,
    error           text,
    payload         text not null default 'null',
    result          text,
    check ((status = 'leased') = (leased_by is not null)),
    check ((status = 'leased') = (lease_until is not null)),
    check ((status = 'succeeded' or status = 'failed' or status = 'cancelled') = (finished_at is not null)),
    check ((status = 'paused') = (resume_to is not null))
) strict;

insert into workflow_run_new (
    id, tenant, type, kind, status, priority, run_at, idempotency_key, digest, attempt, max_attempts, crashes,
    max_crashes, leased_by, lease_until, fence, commit_fence, commit_no, commit_answer, started_fence, waiting_on,
    wait_topic, deadline_at, resume_to, pause_asked_by, cursor, step_mark, parent_id, parent_step, owes, limit_key,
    cost, budget, trace, timeout_seconds, timeout_at, ttl_seconds, expires_at, inbox_mark, rev, created_at,
    updated_at, started_at, finished_at, deleted_at, labels, progress, last_error, error, payload, result
)
select
    id, tenant, type, kind, status, priority, run_at, idempotency_key, digest, attempt, max_attempts, crashes,
    max_crashes, leased_by, lease_until, fence, commit_fence, commit_no, commit_answer, started_fence, waiting_on,
    wait_topic, deadline_at, resume_to, pause_asked_by, cursor, step_mark, parent_id, parent_step, owes, limit_key,
    cost, budget, trace, timeout_seconds, timeout_at, ttl_seconds, expires_at, inbox_mark, rev, created_at,
    updated_at, started_at, finished_at, deleted_at, labels, progress, last_error, error, payload, result
from workflow_run;

drop table workflow_run;
alter table workflow_run_new rename to workflow_run;

create unique index idx_workflow_run_idempotency on workflow_run (idempotency_key) where idempotency_key is not null;
create index idx_workflow_run_claim on workflow_run (type, priority, run_at, id)
    where status = 'pending' and deleted_at is null;
create index idx_workflow_run_tenant_claim on workflow_run (type, tenant, limit_key, priority, run_at, id)
    where status = 'pending' and deleted_at is null;
create index idx_workflow_run_keyed_claim on workflow_run (tenant, type, priority, run_at, id)
    where status = 'pending' and deleted_at is null and limit_key is not null;
create index idx_workflow_run_keyed_lease on workflow_run (limit_key) where status = 'leased' and limit_key is not null;
create index idx_workflow_run_leases on workflow_run (leased_by, lease_until, id) where status = 'leased';
create index idx_workflow_run_timeouts on workflow_run (timeout_at, id)
    where timeout_at is not null and finished_at is null;
create index idx_workflow_run_status on workflow_run (status, id)
    where status = 'waiting' or status = 'paused' or status = 'failed' or status = 'cancelled';
create index idx_workflow_run_deleted_at on workflow_run (deleted_at, id) where deleted_at is not null;
create index idx_workflow_run_finished on workflow_run (finished_at, id)
    where finished_at is not null and expires_at is null;
create index idx_workflow_run_expires on workflow_run (expires_at, id) where expires_at is not null;
create index idx_workflow_run_parent on workflow_run (parent_id, id) where parent_id is not null;
create index idx_workflow_run_owes on workflow_run (id) where owes > 0;

create table workflow_step_new (
    run_id          text not null,
    seq             integer not null,
    key             text not null,
    kind            text not null
                    check (kind = 'task' or kind = 'sleep' or kind = 'event' or kind = 'approval' or kind = 'child'
                           or kind = 'now' or kind = 'emit'),
    name            text,
    status          text not null
                    check (status = 'succeeded' or status = 'waiting' or status = 'failed' or status = 'ready'
                           or status = 'pending' or status = 'running' or status = 'cancelled'),
    attempts        integer not null default 0,
    max_attempts    integer,
    cost            integer not null default 0,
    tenant          text not null default 'default',
    topic           text,
    due_at          integer,
    timeout_seconds real,
    since_mark      integer not null default 0,  -- an event wait takes only what came after it
    fence           integer not null default 0,
    number          integer not null default 0,  -- of the item that wrote it, under that fence
    child_id        text,
    waits           integer not null default 0,
    digest          text,                        -- approval: of what is shown
    on_timeout      text,                        -- approval: reject or approve
    started_at      integer,
    finished_at     integer,
    error           text,
    ask             text,                        -- approval: the question and what is shown with it
    wake            text,                        -- a plan's task that has waited: why it is called again
    output          text,
    primary key (run_id, seq),
    unique (run_id, key)
) strict;

insert into workflow_step_new (
    run_id, seq, key, kind, name, status, attempts, max_attempts, cost, tenant, topic, due_at, timeout_seconds,
    since_mark, fence, number, child_id, waits, digest, on_timeout, started_at, finished_at, error, ask, wake,
    output
)
select
    run_id, seq, key, kind, name, status, attempts, max_attempts, cost, tenant, topic, due_at, timeout_seconds,
    since_mark, fence, number, child_id, waits, digest, on_timeout, started_at, finished_at, error, ask, wake,
    output
from workflow_step;

drop table workflow_step;
alter table workflow_step_new rename to workflow_step;

create index idx_workflow_step_due on workflow_step (due_at, run_id, seq)
    where status = 'waiting' and due_at is not null;
create index idx_workflow_step_due_but_plans on workflow_step (due_at, run_id, seq)
    where status = 'waiting' and due_at is not null and kind <> 'child' and kind <> 'task'
        and (kind <> 'event' or timeout_seconds is null);
create index idx_workflow_step_open on workflow_step (run_id, seq) where finished_at is null;
create index idx_workflow_step_topic on workflow_step (tenant, topic, run_id, seq)
    where status = 'waiting' and topic is not null;
create index idx_workflow_step_approval on workflow_step (tenant, run_id, seq)
    where kind = 'approval' and status = 'waiting' and finished_at is null;
create index idx_workflow_step_any_approval on workflow_step (run_id, seq)
    where kind = 'approval' and status = 'waiting' and finished_at is null;

create table workflow_schedule_new (
    tenant          text not null default 'default',
    name            text not null,
    id              text not null unique,        -- another one when it is removed and made again
    type            text not null,
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
    paused          integer not null default 0,
    paused_by       text,
    next_at         integer,
    fired           integer not null default 0,
    skipped         integer not null default 0,
    last_at         integer,
    last_run        text,
    last_skipped_at integer,
    last_missed_at  integer,
    rev             integer not null default 1,
    created_at      integer not null,
    updated_at      integer not null,
    labels          text,
    waiting         text,                        -- times in line, a JSON array; null: none
    payload         text not null default 'null',
    primary key (tenant, name)
) strict;

insert into workflow_schedule_new (
    tenant, name, id, type, cron, zone, every_us, anchor_at, jitter_us, overlap, catch_up, priority, max_attempts,
    timeout_seconds, ttl_seconds, budget, limit_key, paused, paused_by, next_at, fired, skipped, last_at, last_run,
    last_skipped_at, last_missed_at, rev, created_at, updated_at, labels, waiting, payload
)
select
    tenant, name, id, type, cron, zone, every_us, anchor_at, jitter_us, overlap, catch_up, priority, max_attempts,
    timeout_seconds, ttl_seconds, budget, limit_key, paused, paused_by, next_at, fired, skipped, last_at, last_run,
    last_skipped_at, last_missed_at, rev, created_at, updated_at, labels, waiting, payload
from workflow_schedule;

drop table workflow_schedule;
alter table workflow_schedule_new rename to workflow_schedule;

create index idx_workflow_schedule_next on workflow_schedule (next_at, tenant, name)
    where paused = 0 and next_at is not null;
create index idx_workflow_schedule_waiting on workflow_schedule (id) where waiting is not null;

-- How many runs an event has reached that takes several commits: its own row, with its payload, is written at the end.
alter table workflow_delivery add column woken integer not null default 0;

-- Chains: runs that went on as another. Every later run names the first one; that names the present one.

create index idx_workflow_run_chain on workflow_run (chain, deleted_at, id) where chain is not null;

-- Receipts belong to the chain (run_id: its first run); `link` is the run that took the event, if it is a later one. They
-- go with their event: a chain may have no end.
alter table workflow_receipt add column link text;

create index idx_workflow_receipt_link on workflow_receipt (link, step) where link is not null;
create index idx_workflow_receipt_event on workflow_receipt (event_seq) where link is not null;

-- How far a chain has taken all events of a topic, so that nobody walks over them again.
create table workflow_chain_topic (
    chain  text not null,
    topic  text not null,
    passed integer not null,
    primary key (chain, topic)
) strict, without rowid;
