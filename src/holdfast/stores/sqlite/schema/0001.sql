-- The first schema. Instants are microseconds since the epoch, ids canonical lower-case UUID text,
-- values JSON text. Columns that only a later room fills are here already: tables stay additive.
-- The lists of statuses are written with `or`: for `in` SQLite builds a table at every insert, which costs as much
-- as the insert itself.

create table workflow_run (
    id              text primary key check (length(id) = 36),
    tenant          text not null default 'default',
    type            text not null,
    kind            text not null default 'code',
    payload         text not null default 'null',
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
    limit_key       text,
    labels          text,
    cost            integer not null default 0,
    budget          integer,
    progress        text,
    trace           text,
    result          text,
    last_error      text,
    error           text,
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
    check ((status = 'leased') = (leased_by is not null)),
    check ((status = 'leased') = (lease_until is not null)),
    check ((status = 'succeeded' or status = 'failed' or status = 'cancelled') = (finished_at is not null)),
    check ((status = 'paused') = (resume_to is not null))
) strict, without rowid;

create unique index idx_workflow_run_idempotency on workflow_run (idempotency_key) where idempotency_key is not null;
create index idx_workflow_run_claim on workflow_run (type, priority, run_at, id)
    where status = 'pending' and deleted_at is null;
create index idx_workflow_run_tenant_claim on workflow_run (tenant, type, priority, run_at, id)
    where status = 'pending' and deleted_at is null;
create index idx_workflow_run_leases on workflow_run (leased_by, lease_until) where status = 'leased';
create index idx_workflow_run_timeouts on workflow_run (timeout_at)
    where timeout_at is not null and finished_at is null;
-- What people look for. Pending and leased have indexes of their own, and succeeded is nearly everything.
create index idx_workflow_run_status on workflow_run (status, id)
    where status = 'waiting' or status = 'paused' or status = 'failed' or status = 'cancelled';
create index idx_workflow_run_deleted_at on workflow_run (deleted_at) where deleted_at is not null;

create table workflow_step (
    run_id       text not null,
    seq          integer not null,
    key          text not null,
    kind         text not null
                 check (kind = 'task' or kind = 'sleep' or kind = 'event' or kind = 'approval' or kind = 'child'
                        or kind = 'now' or kind = 'emit'),
    name         text,
    status       text not null
                 check (status = 'succeeded' or status = 'waiting' or status = 'failed' or status = 'ready'
                        or status = 'pending' or status = 'running' or status = 'cancelled'),
    attempts     integer not null default 0,
    max_attempts integer,
    output       text,
    error        text,
    cost         integer not null default 0,
    tenant       text not null default 'default',
    topic        text,
    due_at       integer,
    since_mark   integer not null default 0,  -- an event wait takes only what came after it
    fence        integer not null default 0,
    number       integer not null default 0,  -- of the item that wrote it, under that fence
    started_at   integer,
    finished_at  integer,
    primary key (run_id, seq),
    unique (run_id, key)
) strict, without rowid;

create index idx_workflow_step_due on workflow_step (due_at) where status = 'waiting' and due_at is not null;
create index idx_workflow_step_open on workflow_step (run_id, seq) where finished_at is null;
create index idx_workflow_step_topic on workflow_step (tenant, topic, run_id, seq)
    where status = 'waiting' and topic is not null;

create table workflow_event (
    id          integer primary key autoincrement,
    workflow_id text not null,
    event_type  text not null,
    data        text not null default '{}',
    created_at  integer not null
) strict;

create index idx_workflow_event_run on workflow_event (workflow_id, id);
create index idx_workflow_event_log on workflow_event (workflow_id) where event_type = 'log';

create table workflow_inbox (
    seq        integer primary key autoincrement,
    tenant     text not null default 'default',
    topic      text not null,
    event_id   text not null,
    run_id     text,
    payload    text not null default 'null',
    at         integer not null,
    delivered  integer not null default 0,
    woken      integer not null default 0,
    keep_until integer,                      -- null: as long as its run
    unique (tenant, event_id)
) strict;

create index idx_workflow_inbox_topic on workflow_inbox (tenant, topic, run_id, seq);
create index idx_workflow_inbox_undelivered on workflow_inbox (seq) where delivered = 0;

create table workflow_receipt (
    run_id    text not null,
    event_seq integer not null,
    step      text not null,
    primary key (run_id, event_seq)
) strict, without rowid;

create table workflow_definition (
    type            text primary key,
    kind            text not null default 'code',
    max_attempts    integer,
    timeout_seconds real,
    description     text not null default '',
    steps           text,
    updated_at      integer not null
) strict, without rowid;

create table workflow_worker (
    worker   text primary key,
    types    text not null,
    patterns text not null,
    tenants  text,
    slots    integer not null default 0,
    seen_at  integer not null
) strict, without rowid;

create table workflow_outbox (
    seq        integer primary key autoincrement,
    id         text not null unique,
    run_id     text not null,
    step       text,
    sink       text not null,
    key        text,
    payload    text not null default 'null',
    status     text not null default 'pending' check (status in ('pending', 'sent', 'dead')),
    attempts   integer not null default 0,
    next_at    integer not null,
    last_error text,
    created_at integer not null,
    sent_at    integer
) strict;

create table workflow_registry (
    workflow_name text primary key,
    runtime       text not null default 'python',
    is_enabled    integer not null default 1,
    description   text not null default '',
    intent_type   text not null default 'workflow',
    created_at    integer not null,
    updated_at    integer not null
) strict, without rowid;

create table workflow_schedule (
    name       text primary key,
    tenant     text not null default 'default',
    type       text not null,
    payload    text not null default 'null',
    cron       text,
    every_us   integer,
    zone       text not null default 'UTC',
    jitter_us  integer not null default 0,
    overlap    text not null default 'skip' check (overlap in ('skip', 'allow', 'queue')),
    catch_up   text not null default 'one' check (catch_up in ('none', 'one', 'all')),
    paused     integer not null default 0,
    next_at    integer,
    last_at    integer,
    created_at integer not null,
    updated_at integer not null
) strict, without rowid;

create table workflow_api_key (
    id         text primary key,
    tenant     text not null,
    name       text not null,
    hash       text not null unique,
    roles      text not null,
    limits     text,
    created_at integer not null,
    revoked_at integer
) strict, without rowid;
