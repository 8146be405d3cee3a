-- The runs of each tenant by id, for lists and searches: a tenant pays nothing for the runs of others. Decision 48 has the
-- reasons. Two indexes, of which each run is in one. No move changes these columns, so updates stay on their page.
create index idx_workflow_run_tenant_roots on workflow_run (tenant, id) where parent_id is null;
create index idx_workflow_run_tenant_children on workflow_run (tenant, id) where parent_id is not null;
