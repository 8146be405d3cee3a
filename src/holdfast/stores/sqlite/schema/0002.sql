-- What a purge looks for: runs that have ended, by when they expire, and events, by how long they are kept.

create index idx_workflow_run_finished on workflow_run (finished_at) where finished_at is not null and expires_at is null;
create index idx_workflow_run_expires on workflow_run (expires_at) where expires_at is not null;
create index idx_workflow_inbox_keep on workflow_inbox (keep_until) where keep_until is not null;
create index idx_workflow_inbox_run on workflow_inbox (run_id) where run_id is not null;
create index idx_workflow_outbox_run on workflow_outbox (run_id);
