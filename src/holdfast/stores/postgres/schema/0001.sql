-- The first schema, created with search_path set to the store's own schema. Instants are timestamptz by the server's
-- clock. Values are json, stored exactly as written (jsonb turns 1e16 into an integer and loses -0.0). Text that is
-- ordered is compared by bytes, as in every other store. `rev` grows with each write of the verbs; a write that does
-- not change it comes from user SQL, and triggers complete it. There are no foreign keys: only a session that holds the
-- lock of a run's row writes its rows.

-- "Now", for everything: the start of the statement. Never now(), which is the start of a transaction.
create function clock() returns timestamptz language sql stable parallel safe as 'select statement_timestamp()';

-- The default id of rows of user SQL, sorted by time. It calls no function of this schema: the search_path is unknown.
create function new_id() returns uuid language sql volatile as $$
    select encode(
        set_bit(set_bit(overlay(
            uuid_send(gen_random_uuid())
            placing substring(int8send((extract(epoch from statement_timestamp()) * 1000)::bigint) from 3) from 1 for 6
        ), 52, 1), 53, 1), 'hex'
    )::uuid
$$;

create table workflow_run (
    id              uuid primary key default new_id(),
    tenant          text collate "C" not null default 'default',
    type            text collate "C" not null,
    kind            text not null default 'code',
    payload         json not null default 'null',
    status          text not null default 'pending'
                    check (status in ('pending', 'leased', 'waiting', 'paused', 'succeeded', 'failed', 'cancelled')),
    priority        integer not null default 100,
    run_at          timestamptz not null default clock(),
    idempotency_key text collate "C",                  -- other tenants: tenant, U+001F, key
    digest          text not null default '',
    attempt         integer not null default 0,
    max_attempts    integer not null,                  -- a trigger fills it in for user SQL
    crashes         integer not null default 0,
    max_crashes     integer not null default 4,
    survived        integer not null default 0,        -- 1: it executed for a lease time, its crashes were forgiven
    tried_of        integer,                           -- it failed by a step: the tries of that step
    leased_by       text collate "C",
    lease_until     timestamptz,
    fence           bigint not null default 0,
    commit_fence    bigint not null default 0,         -- the last commit that is recorded on this row,
    commit_no       integer not null default 0,        -- its number
    commit_answer   text,                              -- and its verdict, for when it is sent again
    started_fence   bigint not null default 0,         -- the execution whose `started` is in the trail
    plain_fence     bigint not null default 0,         -- the last lease that user SQL has taken
    waiting_on      text,                              -- kind, topic and time of the first due open wait,
    wait_topic      text,                              -- for people; the steps decide
    deadline_at     timestamptz,
    resume_to       text check (resume_to in ('pending', 'waiting')),
    pause_asked_by  text,
    step_mark       integer not null default 0,        -- the highest step number that was ever forgotten
    parent_id       uuid,
    parent_step     text,
    limit_key       text collate "C",
    labels          json,
    cost            bigint not null default 0,
    budget          bigint,
    progress        json,
    trace           text,
    result          json,
    last_error      text,
    error           json,
    timeout_seconds double precision,
    timeout_at      timestamptz,
    ttl_seconds     double precision,
    expires_at      timestamptz,
    inbox_mark      bigint not null default 0,         -- the newest event there was when the run was started
    chain           uuid,                              -- the first run of its chain, if that is another one
    present         uuid,                              -- of a first run: the present run of its chain
    -- The debts of its last commit, which `deliver` carries out: 1 tell the parent of its end, 2 cancel its children, 4
    -- cancel the children that no step names any more, 8 look at its open waits, 16 delete or restore its chain.
    owes            integer not null default 0,
    rev             bigint not null default 0,
    created_at      timestamptz not null default clock(),
    updated_at      timestamptz not null default clock(),
    started_at      timestamptz,
    finished_at     timestamptz,
    deleted_at      timestamptz,                       -- -infinity: a purge has begun to remove it
    check ((status = 'leased') = (leased_by is not null)),
    check ((status = 'leased') = (lease_until is not null)),
    check ((status in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)),
    check ((status = 'paused') = (resume_to is not null))
) with (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1
);

create unique index idx_workflow_run_idempotency on workflow_run (idempotency_key);
create index idx_workflow_run_claim on workflow_run (type, priority, run_at, id)
    where status = 'pending' and deleted_at is null;
-- For claims of some tenants only.
create index idx_workflow_run_tenant_claim on workflow_run (tenant, type, priority, run_at, id)
    where status = 'pending' and deleted_at is null;
-- Runs of a type by tenant and limit_key, so that runs of a full key are skipped as a whole; also for LIKE by prefix in
-- user SQL. No index by type and run_at without the id: claims would use it, and sort all runs of one instant.
create index idx_workflow_run_type_prefix on workflow_run (type, tenant, limit_key, priority, run_at, id)
    where status = 'pending' and deleted_at is null;
-- Not by lease_until, so that a renewal changes no index and stays on its page.
create index idx_workflow_run_lease on workflow_run (leased_by) where status = 'leased';
-- To count the leased runs of a key. For types and tenants all leased runs are counted.
create index idx_workflow_run_keyed_lease on workflow_run (limit_key) where status = 'leased' and limit_key is not null;
create index idx_workflow_run_timeouts on workflow_run (timeout_at)
    where timeout_at is not null and finished_at is null;
-- For lists by status. Pending and leased have indexes of their own, and succeeded is nearly everything.
create index idx_workflow_run_status on workflow_run (status, id)
    where status in ('waiting', 'paused', 'failed', 'cancelled');
create index idx_workflow_run_deleted_at on workflow_run (deleted_at) where deleted_at is not null;
create index idx_workflow_run_finished on workflow_run (finished_at)
    where finished_at is not null and expires_at is null;
create index idx_workflow_run_expires on workflow_run (expires_at) where expires_at is not null;
create index idx_workflow_run_parent on workflow_run (parent_id, id) where parent_id is not null;
create index idx_workflow_run_chain on workflow_run (chain, deleted_at, id) where chain is not null;
create index idx_workflow_run_owes on workflow_run (id) where owes > 0;

create table workflow_step (
    run_id          uuid not null,
    seq             integer not null,                  -- code: when its outcome became known; plan: its place, from 0
    key             text collate "C" not null,
    kind            text not null
                    check (kind in ('task', 'sleep', 'event', 'approval', 'child', 'now', 'emit')),
    status          text not null
                    check (status in ('pending', 'ready', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')),
    attempts        integer not null default 0,
    max_attempts    integer,
    output          json,
    error           json,
    cost            bigint not null default 0,
    tenant          text collate "C" not null default 'default',
    topic           text collate "C",
    due_at          timestamptz,
    since_mark      bigint not null default 0,         -- an event wait takes only what came after it
    fence           bigint not null default 0,
    number          integer not null default 0,        -- number of the item that wrote it, under that fence
    started_at      timestamptz,
    finished_at     timestamptz,
    -- The row holds everything that a step of a plan begins with: after the start only the database decides.
    timeout_seconds double precision,
    ask             json,                              -- approval: the question and what is shown with it
    digest          text,                              -- approval: digest of what is shown
    on_timeout      text,                              -- approval: reject or approve
    child_id        uuid,
    wake            json,                              -- a plan's task that has waited: why it is called again
    waits           integer not null default 0,
    primary key (run_id, seq),
    unique (run_id, key)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

create index idx_workflow_step_due on workflow_step (due_at) where status = 'waiting' and due_at is not null;
-- The same without the tasks and awaited events of plans, which a keeper may skip.
create index idx_workflow_step_due_but_plans on workflow_step (due_at)
    where status = 'waiting' and due_at is not null and kind <> 'child' and kind <> 'task'
        and (kind <> 'event' or timeout_seconds is null);
create index idx_workflow_step_open on workflow_step (run_id, seq) where finished_at is null;
create index idx_workflow_step_topic on workflow_step (tenant, topic, run_id, seq)
    where status = 'waiting' and topic is not null;
create index idx_workflow_step_approval on workflow_step (tenant, run_id, seq)
    where kind = 'approval' and status = 'waiting';
create index idx_workflow_step_any_approval on workflow_step (run_id, seq)
    where kind = 'approval' and status = 'waiting';

-- The trail. `told`: inserted by a worker's own user SQL, not by a verb.
create table workflow_event (
    id          bigint generated by default as identity primary key,
    workflow_id uuid not null,
    event_type  text not null,
    data        json not null default '{}',
    created_at  timestamptz not null default clock(),
    told        boolean not null default true
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000);

create index idx_workflow_event_run on workflow_event (workflow_id, id);
create index idx_workflow_event_log on workflow_event (workflow_id, id) where event_type = 'log';

create table workflow_inbox (
    seq        bigint generated by default as identity primary key,
    tenant     text collate "C" not null default 'default',
    topic      text collate "C" not null,
    event_id   text collate "C" not null,
    run_id     uuid,
    payload    json not null default 'null',
    at         timestamptz not null default clock(),
    delivered  boolean not null default false,
    -- Recorded in a caller's transaction, which may commit long after: the event gets a new number when it is
    -- delivered, and no wait takes it before.
    late       boolean not null default false,
    late_by    xid8,                                   -- that transaction
    woken      integer not null default 0,
    place      json,                                   -- the wait up to which it was delivered, in several slices
    keep_until timestamptz,                            -- null: as long as its run
    unique (tenant, event_id)
);

create index idx_workflow_inbox_topic on workflow_inbox (tenant, topic, run_id, seq);
create index idx_workflow_inbox_undelivered on workflow_inbox (seq) where not delivered;
create index idx_workflow_inbox_keep on workflow_inbox (keep_until) where keep_until is not null;
create index idx_workflow_inbox_run on workflow_inbox (run_id) where run_id is not null;

create table workflow_receipt (
    run_id    uuid not null,                           -- the first run of the chain
    event_seq bigint not null,
    step      text not null,
    link      uuid,                                    -- a later run of the chain that took the event
    primary key (run_id, event_seq)
);
create index idx_workflow_receipt_link on workflow_receipt (link, step) where link is not null;
create index idx_workflow_receipt_event on workflow_receipt (event_seq) where link is not null;
create table workflow_chain_topic (                    -- how far a chain has taken all events of a topic
    chain uuid, topic text collate "C", tenant text collate "C" not null, passed bigint not null, primary key (chain, topic)
);
create index idx_workflow_chain_topic on workflow_chain_topic (tenant, topic, passed);
create table workflow_definition (
    type            text collate "C" primary key,
    kind            text not null default 'code',
    max_attempts    integer,
    timeout_seconds double precision,
    description     text not null default '',
    steps           json,
    budget          bigint,
    updated_at      timestamptz not null default clock()
);

create table workflow_worker (
    worker     text collate "C" primary key,
    types      json not null default '[]',
    patterns   json not null default '["%"]',
    tenants    json,
    runtime    text not null default 'python',
    slots      integer not null default 0,
    stragglers integer not null default 0,
    sinks      json not null default '[]',
    lacking    json not null default '{}',             -- by plan, the tasks without a handler
    seen_at    timestamptz not null default clock()
);

-- Messages of one tenant, sink and key form a queue (a line). All but the first are `behind`, and the index of due
-- messages holds only the others: so however long a blocked queue is, nobody reads along it.
create table workflow_outbox (
    seq        bigint generated by default as identity primary key,
    id         text collate "C" not null unique,
    tenant     text collate "C" not null default 'default',
    run_id     uuid not null,
    step       text,
    sink       text collate "C" not null,
    key        text collate "C",
    payload    json not null default 'null',
    status     text not null default 'pending' check (status in ('pending', 'sent', 'dead')),
    attempts   integer not null default 0,
    behind     boolean not null default false,
    next_at    timestamptz not null default clock(),
    fence      bigint not null default 0,
    held_by    text,
    last_error json,
    created_at timestamptz not null default clock(),
    tried_at   timestamptz,
    sent_at    timestamptz
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);

create index idx_workflow_outbox_due on workflow_outbox (sink, next_at, seq) where status = 'pending' and not behind;
create index idx_workflow_outbox_tenant_due on workflow_outbox (sink, tenant, next_at, seq)
    where status = 'pending' and not behind;
create index idx_workflow_outbox_line on workflow_outbox (tenant, sink, key, seq)
    where status = 'pending' and key is not null;
create index idx_workflow_outbox_left on workflow_outbox (seq) where status <> 'sent';
create index idx_workflow_outbox_run on workflow_outbox (run_id);

create table workflow_webhook (
    name          text collate "C" primary key,
    target        json not null,
    allow_private boolean not null default false,
    rev           bigint not null default 1,
    created_at    timestamptz not null default clock(),
    updated_at    timestamptz not null default clock()
);

create table workflow_registry (
    workflow_name text collate "C" primary key,
    runtime       text not null default 'python',
    is_enabled    boolean not null default true,
    description   text not null default '',
    intent_type   text not null default 'workflow',
    created_at    timestamptz not null default clock(),
    updated_at    timestamptz not null default clock()
);

create table workflow_schedule (
    tenant          text collate "C" not null default 'default',
    name            text collate "C" not null,
    id              uuid not null unique,              -- a new one when it is removed and made again
    type            text collate "C" not null,
    payload         json not null default 'null',
    cron            text,
    zone            text not null default 'UTC',
    every_us        bigint,
    anchor_at       timestamptz not null default 'epoch', -- the start of the intervals
    jitter_us       bigint not null default 0,
    overlap         text not null default 'skip' check (overlap in ('skip', 'allow', 'queue')),
    catch_up        text not null default 'one' check (catch_up in ('none', 'one', 'all')),
    priority        integer not null default 100,
    max_attempts    integer,
    timeout_seconds double precision,
    ttl_seconds     double precision,
    budget          bigint,
    limit_key       text,
    labels          json,
    paused          boolean not null default false,
    paused_by       text,
    next_at         timestamptz,
    waiting         timestamptz[] not null default '{}', -- queued times, oldest first
    fired           bigint not null default 0,
    skipped         bigint not null default 0,
    last_at         timestamptz,
    last_run        uuid,
    last_skipped_at timestamptz,
    last_missed_at  timestamptz,
    rev             bigint not null default 1,
    created_at      timestamptz not null default clock(),
    updated_at      timestamptz not null default clock(),
    primary key (tenant, name)
);

create index idx_workflow_schedule_next on workflow_schedule (next_at) where not paused and next_at is not null;
create index idx_workflow_schedule_waiting on workflow_schedule (id) where waiting <> '{}';

-- The open runs of a schedule, except runs that were seen to have ended. A schedule whose runs may overlap has none
-- here.
create table workflow_firing (
    schedule_id uuid not null, run_id uuid not null, primary key (schedule_id, run_id)
);

create table workflow_limit (
    scope        text not null check (scope in ('type', 'tenant', 'key')),
    name         text collate "C" not null,            -- a name that ends in % applies to each name with that prefix
    concurrency  integer,
    rate         integer,
    period       bigint,                               -- microseconds
    weight       double precision,
    paused_until timestamptz,
    updated_at   timestamptz not null default clock(),
    primary key (scope, name),
    check ((rate is null) = (period is null))
);

create index idx_workflow_limit_prefix on workflow_limit (scope, name) where right(name, 1) = '%';

-- The claims that a rate counts. `number` is a running count, so that two lookups count a window, however much is in
-- it.
create table workflow_limit_use (
    scope   text not null,
    name    text collate "C" not null,
    at      timestamptz not null,
    number  bigint not null,
    taken   integer not null,
    gone_at timestamptz not null,                      -- when it does not count any more
    primary key (scope, name, at)
);

create index idx_workflow_limit_use_gone on workflow_limit_use (gone_at);

-- Fair shares, where tenants have weights: a book for each kind of worker, and in it the place of each tenant that
-- waits.
create table workflow_limit_book (
    id      bigint generated always as identity primary key,
    asks    text not null unique,                      -- types, tenants and runtime that such a worker asks for
    passed  bigint not null,                           -- the place that was served last
    used_at timestamptz not null
);

create table workflow_limit_place (
    book bigint not null, tenant text collate "C" not null, at bigint not null, primary key (book, tenant)
);

-- The commit guard of transactions that user code has. Always empty: the deferred trigger of a row does the work.
create unlogged table workflow_pledge (id text not null);

-- The state of a holder's item on its way through `commit`; no table has a column of this type.
create type writing as (
    number        integer,
    move          text,
    known         integer,       -- the highest number that the holder has seen
    attempt       integer,
    crashes       integer,
    lease_until   timestamptz,
    pause_by      text,
    started_fence bigint,
    started_at    timestamptz,
    seq           integer,       -- the highest number of the run
    kept          json,          -- keys that were recorded before, with their recorded values
    cost          bigint,
    progress      boolean,
    silent        boolean,       -- nothing that this item wrote so far has a trail row
    ready         text[],        -- the steps that back off
    opened        bigint,        -- the trail row of the last wait that was opened,
    opened_key    text,          -- its step
    opened_kind   text,
    done          bigint,        -- of a plan: the trail row of the last step that has succeeded
    news          json           -- of a plan: the row that is current now, if the holder goes on
);
