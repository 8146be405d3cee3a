-- Steps that a worker executes now, for people: written when a step has run for 2 s, once for each holder of a run.
create table workflow_running (
    run_id text primary key,
    fence  integer not null,                     -- of the holder: what an earlier one wrote is not shown
    steps  text not null                         -- at most 20 steps, a JSON array
) strict, without rowid;

create trigger workflow_running_over after delete on workflow_run begin
    delete from workflow_running where run_id = old.id;
end;

-- Counts moves of leased runs by others than their holders. A worker compares it when the file has changed, and then
-- looks at its leases.
create table workflow_holder_call (id integer primary key check (id = 1), calls integer not null) strict;
insert into workflow_holder_call (id, calls) values (1, 0);
