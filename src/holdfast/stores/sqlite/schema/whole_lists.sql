-- The second part of whole.sql: tables and indexes for the filters of lists. A start, a claim, a checkpoint and a complete pay little or nothing for it: labels stand
-- in a small table, and the other indexes hold only the runs that no older index finds. Decision 48 has the figures.

-- The labels of runs that have some. `value`: its first 256 characters; filters ask for at most 255.
create table workflow_label (
    name   text not null,
    value  text not null,
    run_id text not null,
    primary key (name, value, run_id)
) strict, without rowid;

create index idx_workflow_label_name on workflow_label (name, run_id);

create trigger workflow_label_start after insert on workflow_run when json_valid(new.labels) begin
    insert or ignore into workflow_label (name, value, run_id)
    select key, substr(value, 1, 256), new.id
    from (select key, value, type from json_each(new.labels) limit 100) where type = 'text' and length(key) <= 255;
end;

create trigger workflow_label_over after delete on workflow_run when json_valid(old.labels) begin
    delete from workflow_label
    where run_id = old.id and (name, value) in (select key, substr(value, 1, 256) from json_each(old.labels));
end;

create index idx_workflow_run_roots on workflow_run (id) where parent_id is null;

-- The runs of each tenant; 0013.sql says why there are two.
create index idx_workflow_run_tenant_roots on workflow_run (tenant, id) where parent_id is null;
create index idx_workflow_run_tenant_children on workflow_run (tenant, id) where parent_id is not null;

-- Failed runs by the fingerprint of their error, as records/fingerprints.py makes it.
create index idx_workflow_run_error on workflow_run (
    iif(json_valid(error), coalesce(error ->> '$.fingerprint', replace(replace(replace(
        iif(
            error ->> '$.type' = 'StepFailed' and instr(error ->> '$.message', ''' failed: ') > 0
                and instr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), ': ') > 0,
            substr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), 1,
                min(100, instr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), ': ') - 1)),
            substr(coalesce(nullif(error ->> '$.type', ''), error ->> '$.kind', ''), 1, 100)
        )
        || iif(error ->> '$.step' is null, '', ' at ' || substr(error ->> '$.step', 1, 200))
        || ': ' || iif(
            error ->> '$.type' = 'StepFailed' and instr(error ->> '$.message', ''' failed: ') > 0
                and instr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), ': ') > 0,
            substr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10),
                instr(substr(error ->> '$.message', instr(error ->> '$.message', ''' failed: ') + 10), ': ') + 2, 200),
            substr(coalesce(error ->> '$.message', ''), 1, 200)
        ),
    char(10), ' '), char(13), ' '), char(9), ' ')), null), id
) where status = 'failed';

-- An id of ours begins with the milliseconds of its start: so a list by start is a range of ids. These are the ids of
-- which that is not true, by more than an hour.
create index idx_workflow_run_odd_id on workflow_run (created_at, id)
where substr(id, 1, 8) || substr(id, 10, 4)
    not between printf('%012x', created_at / 1000 - 3600000) and printf('%012x', created_at / 1000 + 3600000);

-- Ends of the runs that idx_workflow_run_finished leaves out.
create index idx_workflow_run_finished_ttl on workflow_run (finished_at, id)
    where finished_at is not null and expires_at is not null;

-- Last changes that are neither the start nor the end. A leased run changes often; there are few of them.
create index idx_workflow_run_changed on workflow_run (updated_at, id)
    where status <> 'leased' and updated_at > created_at and (finished_at is null or updated_at <> finished_at);
