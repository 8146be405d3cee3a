-- The library of a worker, for people: `holdfast-go 0.1.0 (go)`.
alter table workflow_worker add column library text not null default '';
