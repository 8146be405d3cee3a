-- Tables and indexes for the filters of lists; decision 48 has the reasons. A column that any index names, even a partial one, makes
-- every change of it write a new entry into all indexes: so there is no index on updated_at, and none on a column that
-- changes while a run executes.

-- Writes wait until the triggers of labels are there: no label may be missed. Reads go on.
lock table workflow_run in share row exclusive mode;

-- The labels of runs that have some. `value`: its first 256 characters; filters ask for at most 255.
create table workflow_label (
    name   text collate "C" not null,
    value  text collate "C" not null,
    run_id uuid not null,
    primary key (name, value, run_id)
);

create index idx_workflow_label_name on workflow_label (name, run_id);

-- The labels of a run as rows of that table: the first hundred. Labels with escapes that Postgres cannot read have none. Labels with
-- escapes are not checked when user SQL writes them: a null among them has no row.
create function label_rows(labels json) returns table (name text, value text) language plpgsql immutable as $$
begin
    if json_typeof(labels) <> 'object' then
        return;
    elsif position('\u' in labels::text) > 0 then
        begin
            return query select l.key, left(l.value, 256)
            from json_each_text(labels) with ordinality as l (key, value, place)
            where l.place <= 100 and length(l.key) <= 255 and l.value is not null;
        exception when others then
            return;
        end;
    else
        return query select l.key, left(l.value, 256)
        from json_each_text(labels) with ordinality as l (key, value, place)
        where l.place <= 100 and length(l.key) <= 255 and l.value is not null;
    end if;
end $$;

insert into workflow_label (name, value, run_id)
select l.name, l.value, r.id from workflow_run as r cross join lateral label_rows(r.labels) as l
where r.labels is not null
on conflict do nothing;

create index idx_workflow_run_roots on workflow_run (id) where parent_id is null;

-- The fingerprint of an error, as records/fingerprints.py makes it. Null for an error that cannot be read.
create function fingerprint(error json) returns text language plpgsql immutable set search_path from current as $$
declare
    type text;
    message text;
    inner_error text;
begin
    -- Not in the declarations: an error there would not be caught below.
    type := coalesce(nullif(error ->> 'type', ''), error ->> 'kind', '');
    message := coalesce(error ->> 'message', '');
    if type = 'StepFailed' and position($t$' failed: $t$ in message) > 0 then
        inner_error := substr(message, position($t$' failed: $t$ in message) + 10);
        if position(': ' in inner_error) > 0 then
            type := left(inner_error, position(': ' in inner_error) - 1);
            message := substr(inner_error, position(': ' in inner_error) + 2);
        end if;
    end if;
    return left(coalesce(error ->> 'fingerprint', translate(
        left(type, 100) || coalesce(' at ' || left(error ->> 'step', 200), '') || ': ' || left(message, 200),
        E'\n\r\t', '   '
    )), 600);
exception when others then
    return null;
end $$;

create index idx_workflow_run_error on workflow_run ((fingerprint(error) collate "C"), id) where status = 'failed';

-- An id of ours begins with the milliseconds of its start: so a list by start is a range of ids. True for an id that is
-- more than an hour off.
create function is_odd_id(id uuid, created_at timestamptz) returns boolean language sql immutable parallel safe as $$
    select case when not isfinite(created_at) then true else abs(
        ('x' || encode(substring(uuid_send(id) from 1 for 6), 'hex'))::bit(48)::bigint
        - (extract(epoch from created_at - timestamptz '1970-01-01 00:00:00+00') * 1000)::bigint
    ) > 3600000 end
$$;

create index idx_workflow_run_odd_id on workflow_run (created_at, id) where is_odd_id(id, created_at);

-- Ends of the runs that idx_workflow_run_finished leaves out.
create index idx_workflow_run_finished_ttl on workflow_run (finished_at)
    where finished_at is not null and expires_at is not null;
