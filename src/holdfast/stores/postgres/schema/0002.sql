-- Steps that a worker executes now, for people: written when a step has run for 2 s, once for each holder of a run.
-- The row goes with its run.
create table workflow_running (
    run_id uuid primary key,
    fence  bigint not null,                            -- of the holder: what an earlier one wrote is not shown
    steps  json not null                               -- at most 20 steps: step, attempt, started_at
);
