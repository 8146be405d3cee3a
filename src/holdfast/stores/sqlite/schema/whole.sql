-- The schema of a new file: all that the migrations together make, in one go. A test compares the two; a migration
-- that is added beside this file changes this one too.
--
-- Instants are microseconds since the epoch, ids canonical lower-case UUID text, values JSON text. Lists of statuses
-- are written with `or`: for `in` SQLite builds a table at every insert, which costs as much as the insert itself.
-- Tables that hold values have a rowid, and the values come last: 0006.sql says why.

create table workflow_run (
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
    account         text,                        -- the run at the top whose budget covers it, perhaps itself
    step_mark       integer not null default 0,  -- the highest step number that was ever forgotten
    parent_id       text,
    parent_step     text,
    owes            integer not null default 0,  -- bits of work left to do: see Owes in machine/rows.py
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
    api_key         text,                        -- the API key that it counts under
    check ((status = 'leased') = (leased_by is not null)),
    check ((status = 'leased') = (lease_until is not null)),
    check ((status = 'succeeded' or status = 'failed' or status = 'cancelled') = (finished_at is not null)),
    check ((status = 'paused') = (resume_to is not null))
) strict;

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
create index idx_workflow_run_chain on workflow_run (chain, deleted_at, id) where chain is not null;
create index idx_workflow_run_owes on workflow_run (id) where owes > 0;
create index idx_workflow_run_account on workflow_run (account, id) where account is not null and status = 'paused';

create table workflow_account (              -- a budget that a run shares with its children
    id text primary key, budget integer not null, spent integer not null default 0
) strict, without rowid;
create table workflow_origin (run_id text primary key, origin text not null) strict, without rowid;
create table workflow_step (
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
create index idx_workflow_inbox_keep on workflow_inbox (keep_until) where keep_until is not null;
create index idx_workflow_inbox_run on workflow_inbox (run_id) where run_id is not null;
create trigger workflow_delivery_over after delete on workflow_inbox begin
    delete from workflow_delivery where event_seq = old.seq;
end;

-- Receipts belong to the chain (run_id: its first run); `link` is the run that took the event, if it is a later one. They
-- go with their event: a chain may have no end.
create table workflow_receipt (
    run_id    text not null,
    event_seq integer not null,
    step      text not null,
    link      text,
    primary key (run_id, event_seq)
) strict, without rowid;

create index idx_workflow_receipt_link on workflow_receipt (link, step) where link is not null;
create index idx_workflow_receipt_event on workflow_receipt (event_seq) where link is not null;

-- How far a chain has taken all events of a topic, so that nobody walks over them again.
create table workflow_chain_topic (
    chain text not null, topic text not null, passed integer not null, primary key (chain, topic)
) strict, without rowid;

create table workflow_delivery (
    event_seq integer primary key, run_id text not null, step_seq integer not null, woken integer not null default 0
) strict;

create table workflow_definition (
    type            text primary key,
    kind            text not null default 'code',
    max_attempts    integer,
    timeout_seconds real,
    description     text not null default '',
    steps           text,
    updated_at      integer not null,
    budget          integer,
    covers_children integer not null default 0, params_schema text, result_schema text
) strict, without rowid;

create table workflow_worker (
    worker   text primary key,
    types    text not null,
    patterns text not null,
    tenants  text,
    slots    integer not null default 0,
    seen_at  integer not null,
    stragglers integer not null default 0, sinks text not null default '[]', lacking text not null default '{}',
    runtime  text not null default 'python',
    library  text not null default ''
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
    sent_at    integer,
    tenant     text not null default 'default',
    behind     integer not null default 0,
    fence      integer not null default 0,
    held_by    text,
    tried_at   integer
) strict;

create index idx_workflow_outbox_run on workflow_outbox (run_id);
create index idx_workflow_outbox_due on workflow_outbox (sink, next_at, seq) where status = 'pending' and behind = 0;
create index idx_workflow_outbox_tenant_due on workflow_outbox (sink, tenant, next_at, seq)
    where status = 'pending' and behind = 0;
create index idx_workflow_outbox_line on workflow_outbox (tenant, sink, key, seq)
    where status = 'pending' and key is not null;
create index idx_workflow_outbox_left on workflow_outbox (seq) where status <> 'sent';
create index idx_workflow_outbox_backlog on workflow_outbox (sink, status, created_at) where status <> 'sent';

create table workflow_registry (
    workflow_name text primary key,
    runtime       text not null default 'python',
    is_enabled    integer not null default 1,
    description   text not null default '',
    intent_type   text not null default 'workflow',
    created_at    integer not null,
    updated_at    integer not null
) strict, without rowid;

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

create table workflow_webhook (
    name          text primary key,
    target        text not null,
    allow_private integer not null default 0,
    rev           integer not null default 1,
    created_at    integer not null,
    updated_at    integer not null
) strict, without rowid;

create table workflow_firing (
    schedule_id text not null,
    run_id      text not null,
    primary key (schedule_id, run_id)
) strict, without rowid;

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

create table workflow_limit_book (
    id      integer primary key,
    asks    text not null unique,               -- types, tenants and runtime that such a worker asks for, in JSON
    passed  integer not null,                   -- the place that was served last
    used_at integer not null
) strict;

create table workflow_limit_place (
    book integer not null, tenant text not null, at integer not null, primary key (book, tenant)
) strict, without rowid;

create table workflow_limit_mark (
    id   integer primary key check (id = 1),
    mark integer
) strict;
insert into workflow_limit_mark (id, mark) values (1, null);

create table workflow_schedule (
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

create index idx_workflow_schedule_next on workflow_schedule (next_at, tenant, name)
    where paused = 0 and next_at is not null;
create index idx_workflow_schedule_waiting on workflow_schedule (id) where waiting is not null;

-- Steps that a worker executes now, and a count of moves of leased runs: 0007.sql explains both.
create table workflow_running (run_id text primary key, fence integer not null, steps text not null) strict, without rowid;
create trigger workflow_running_over after delete on workflow_run begin
    delete from workflow_running where run_id = old.id;
end;
create table workflow_holder_call (id integer primary key check (id = 1), calls integer not null) strict;
insert into workflow_holder_call (id, calls) values (1, 0);
