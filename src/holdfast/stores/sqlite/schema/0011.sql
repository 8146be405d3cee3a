-- API keys of the HTTP API, the keys that sign its tokens, the audit log, and the API key that a run counts under.

-- No release has read or written the table of this name that 0001.sql makes.
drop table workflow_api_key;

create table workflow_api_key (
    id               text primary key,
    tenant           text not null,
    name             text not null,
    scopes           text not null,                 -- a JSON array
    patterns         text not null default '[]',    -- the same: types that scope `work` may claim
    secret_hash      text not null,                 -- SHA-256 in hex
    old_secret_hash  text not null default '',
    old_secret_until integer,
    expires_at       integer,
    rate             real,
    open_runs_max    integer,
    created_at       integer not null,
    created_by       text not null default '',
    last_used_at     integer,
    rotated_at       integer,
    revoked_at       integer,
    revoked_by       text not null default ''
) strict, without rowid;

create index idx_workflow_api_key_tenant on workflow_api_key (tenant, id);
create index idx_workflow_api_key_name on workflow_api_key (tenant, name);
create index idx_workflow_api_key_revoked on workflow_api_key (revoked_at) where revoked_at is not null;
create index idx_workflow_api_key_expires on workflow_api_key (expires_at) where expires_at is not null;

create table workflow_signing_key (
    id         integer primary key autoincrement,
    secret     blob not null,
    created_at integer not null
) strict;

create table workflow_audit (
    seq      integer primary key autoincrement,
    at       integer not null,
    tenant   text not null,
    key_id   text not null default '',
    key_name text not null default '',
    action   text not null,
    target   text not null default '',
    outcome  text not null default 'done' check (outcome = 'done' or outcome = 'refused'),
    code     text not null default '',
    request  text not null default ''
) strict;

create index idx_workflow_audit_tenant on workflow_audit (tenant, seq);
create index idx_workflow_audit_key on workflow_audit (key_id, seq) where key_id <> '';
create index idx_workflow_audit_at on workflow_audit (at);

-- It stands behind the values, but nothing reads it there: an index has it while the run is open.
alter table workflow_run add column api_key text;
create index idx_workflow_run_api_key on workflow_run (api_key) where api_key is not null and finished_at is null;
