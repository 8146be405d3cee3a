-- The fifth part of whole.sql: sessions of people who have signed in to the pages. `id_hash` is the SHA-256 of the
-- session's random id.
create table workflow_page_session (
    id_hash      text primary key,
    key_id       text not null,
    secret_hash  text not null,
    idle_seconds real not null,
    created_at   integer not null,
    seen_at      integer not null,
    ends_at      integer not null,
    expires_at   integer not null
) strict, without rowid;

create index idx_workflow_page_session_key on workflow_page_session (key_id, created_at, id_hash);
create index idx_workflow_page_session_ends on workflow_page_session (ends_at);
