-- The second part of whole.sql: counts that are kept. Each commit that changes the status of runs appends small rows;
-- `tick` folds them into the kept counts. Decision 55 has the figures.

-- A change of the counts that is not folded yet. A run has left the count of `from_status` (null: it was not counted) and
-- entered that of `to_status` (null: it is not counted any more); `what`: a happening that is counted too (null: none).
-- Rows are added at the end and removed at the beginning, so the numbers have no gaps.
create table workflow_count_change (
    id          integer primary key,
    tenant      text not null,               -- '': a repair of the counts of all tenants together
    type        text not null,
    from_status text,
    to_status   text,
    what        text,
    at          integer not null,
    number      integer not null default 1
) strict;

-- Runs that are there and not deleted. In these tables tenant '' stands for all tenants together.
create table workflow_count (
    tenant text not null,
    type   text not null,
    status text not null,
    number integer not null,
    primary key (tenant, type, status)
) strict, without rowid;

create index idx_workflow_count_leased on workflow_count (type, tenant) where status = 'leased';

create table workflow_total (                -- happenings since the store began to count
    tenant text not null,
    type   text not null,
    what   text not null,
    number integer not null,
    primary key (tenant, type, what)
) strict, without rowid;

create table workflow_rate (                 -- the same by the minute, as the instant at which it begins
    tenant text not null,
    minute integer not null,
    type   text not null,
    what   text not null,
    number integer not null,
    primary key (tenant, minute, type, what)
) strict, without rowid;

create index idx_workflow_rate_minute on workflow_rate (minute);

create trigger workflow_count_started after insert on workflow_run begin
    insert into workflow_count_change (tenant, type, to_status, what, at)
    values (new.tenant, new.type, new.status, 'started', new.created_at);
end;

create trigger workflow_count_moved after update of status, deleted_at on workflow_run
when new.status <> old.status or (new.deleted_at is null) <> (old.deleted_at is null) begin
    insert into workflow_count_change (tenant, type, from_status, to_status, what, at)
    values (
        new.tenant, new.type, iif(old.deleted_at is null, old.status, null), iif(new.deleted_at is null, new.status, null),
        iif(old.finished_at is null and new.finished_at is not null, new.status, null), new.updated_at
    );
end;

create trigger workflow_count_gone after delete on workflow_run when old.deleted_at is null begin
    insert into workflow_count_change (tenant, type, from_status, at)
    values (old.tenant, old.type, old.status, old.updated_at);
end;
