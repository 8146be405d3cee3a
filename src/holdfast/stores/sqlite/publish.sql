-- :published
select type, kind, max_attempts, timeout_seconds, description, steps, budget, covers_children
from workflow_definition where type = :type

-- :publish
insert into workflow_definition (
    type, kind, max_attempts, timeout_seconds, budget, covers_children, description, steps, params_schema, result_schema,
    updated_at
)
values (
    :type, :kind, :max_attempts, :timeout_seconds, :budget, :covers_children, :description, :steps, :params_schema,
    :result_schema, :now
)
on conflict (type) do update
set kind = excluded.kind, max_attempts = excluded.max_attempts, timeout_seconds = excluded.timeout_seconds,
    budget = excluded.budget, covers_children = excluded.covers_children, description = excluded.description,
    steps = excluded.steps, params_schema = excluded.params_schema, result_schema = excluded.result_schema,
    updated_at = excluded.updated_at
where (kind, max_attempts, timeout_seconds, budget, covers_children, description, steps, params_schema, result_schema)
    is not (excluded.kind, excluded.max_attempts, excluded.timeout_seconds, excluded.budget, excluded.covers_children,
        excluded.description, excluded.steps, excluded.params_schema, excluded.result_schema)

-- :present
insert into workflow_worker (worker, types, patterns, tenants, runtime, slots, stragglers, sinks, lacking,
    library, seen_at)
values (:worker, :types, :patterns, :tenants, :runtime, :slots, :stragglers, :sinks, :lacking, :library, :now)
on conflict (worker) do update
set types = excluded.types, patterns = excluded.patterns, tenants = excluded.tenants,
    runtime = excluded.runtime, slots = excluded.slots,
    stragglers = excluded.stragglers, sinks = excluded.sinks, lacking = excluded.lacking,
    library = excluded.library, seen_at = excluded.seen_at

-- :absent
delete from workflow_worker where worker = :worker
