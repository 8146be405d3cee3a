-- Plain functions of a worker that were told to stop and have not returned.
alter table workflow_worker add column stragglers integer not null default 0;
