-- Messages that are not delivered, by sink: `backlog` counts a bounded number of each sink, however many there are.
create index idx_workflow_outbox_backlog on workflow_outbox (sink, status, created_at) where status <> 'sent';
