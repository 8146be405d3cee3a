-- Counts that are kept. Each commit that changes the status of runs adds to small rows;
-- `tick` folds them into the kept counts. Decision 55 has the figures.

-- Changes of the counts that are not folded yet, by the ten seconds in which they were made (slot: the instant at which
-- these begin; 0: of no time, to be folded at once). `number` runs have left the count of `from_status` ('': they were
-- not counted) and entered that of `to_status` ('': they are not counted any more); `what`: a happening that is counted
-- too ('': none). tenant '': a repair of the counts of all tenants together.
create table workflow_count_change (
    slot        integer not null,
    tenant      text not null,
    type        text not null,
    from_status text not null,
    to_status   text not null,
    what        text not null,
    number      integer not null,
    primary key (slot, tenant, type, from_status, to_status, what)
) strict, without rowid;

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
    insert into workflow_count_change
    values (new.created_at - new.created_at % 10000000, new.tenant, new.type, '', new.status, 'started', 1)
    on conflict do update set number = number + 1;
end;

create trigger workflow_count_moved after update of status, deleted_at on workflow_run
when new.status <> old.status or (new.deleted_at is null) <> (old.deleted_at is null) begin
    insert into workflow_count_change
    values (
        new.updated_at - new.updated_at % 10000000, new.tenant, new.type, iif(old.deleted_at is null, old.status, ''),
        iif(new.deleted_at is null, new.status, ''),
        iif(old.finished_at is null and new.finished_at is not null, new.status, ''), 1
    )
    on conflict do update set number = number + 1;
end;

create trigger workflow_count_gone after delete on workflow_run when old.deleted_at is null begin
    insert into workflow_count_change values (0, old.tenant, old.type, old.status, '', '', 1)
    on conflict do update set number = number + 1;
end;

-- The runs of a file that is older. What has happened to them was not counted.
insert into workflow_count (tenant, type, status, number)
select tenant, type, status, count(*) from workflow_run where deleted_at is null group by tenant, type, status;

insert into workflow_count (tenant, type, status, number)
select '', type, status, sum(number) from workflow_count group by type, status;
