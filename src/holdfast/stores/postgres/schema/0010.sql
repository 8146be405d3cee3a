-- Sessions of people who have signed in to the pages. `id_hash` is the SHA-256 of the session's random id.
create table workflow_page_session (
    id_hash      text collate "C" primary key,
    key_id       text collate "C" not null,
    secret_hash  text not null,
    idle_seconds double precision not null,
    created_at   timestamptz not null,
    seen_at      timestamptz not null,
    ends_at      timestamptz not null,
    expires_at   timestamptz not null
);

create index idx_workflow_page_session_key on workflow_page_session (key_id, created_at, id_hash);
create index idx_workflow_page_session_ends on workflow_page_session (ends_at);
