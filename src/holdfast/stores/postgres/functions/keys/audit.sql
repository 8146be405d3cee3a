-- The audit log, and the keys that sign the tokens of HTTP workers.

-- Write audit rows. Of each text the first 255 characters are kept. `of_tenant` and `about` stand for empty texts.
create or replace function note_acts(entries json, of_tenant text, about text, now timestamptz) returns void
language plpgsql as $$
begin
    insert into workflow_audit (at, tenant, key_id, key_name, action, target, outcome, code, request)
    select now, left(coalesce(nullif(e.tenant, ''), of_tenant), 255), left(coalesce(e.key_id, ''), 255),
        left(coalesce(e.key_name, ''), 255), left(coalesce(e.action, ''), 255),
        left(coalesce(nullif(e.target, ''), about), 255), coalesce(e.outcome, 'done'), left(coalesce(e.code, ''), 255),
        left(coalesce(e.request, ''), 255)
    from rows from (json_to_recordset(entries) as (
        tenant text, key_id text, key_name text, action text, target text, outcome text, code text, request text
    )) with ordinality as e (tenant, key_id, key_name, action, target, outcome, code, request, place)
    order by e.place;
end $$;

create or replace function note_audit(entries json) returns void language plpgsql set search_path from current as $$
begin
    perform note_acts(entries, '', '', clock());
end $$;

-- filter: tenant, after, actions, keys, since, until. Newest first. Looks at one slice of so many rows, and returns what
-- it has found there (`entries`), and where the next slice begins (`after`; null: this was the last).
create or replace function audit(filter json, most bigint, budget bigint default 8388608, slice integer default 5000)
returns json language plpgsql stable
set search_path from current set cursor_tuple_fraction = 1 set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    of_tenant text := filter ->> 'tenant';
    under bigint := coalesce((filter ->> 'after')::bigint, 9223372036854775807);
    actions text[] := texts(filter -> 'actions');
    keys text[] := array(select distinct k.key from unnest(texts(filter -> 'keys')) as k (key));
    since timestamptz := moment((filter ->> 'since')::bigint);
    until timestamptz := moment((filter ->> 'until')::bigint);
    first bigint := 0;
    last bigint;
    records refcursor;
    source text;
begin
    -- Times may be out of order by an hour.
    if since is not null then
        first := coalesce((
            select e.seq from workflow_audit as e where e.at >= since - interval '1 hour' order by e.at, e.seq limit 1
        ), under);
    end if;
    if until is not null then
        under := least(under, coalesce(1 + (
            select e.seq from workflow_audit as e where e.at < until + interval '1 hour'
            order by e.at desc, e.seq desc limit 1
        ), 0));
    end if;
    source := case
        when keys <> '{}' then $sql$
            unnest($1) as k (key) cross join lateral (
                select e.* from workflow_audit as e
                where e.key_id = k.key and e.key_id <> '' and e.seq < $2 and e.seq >= $3
                order by e.seq desc limit $4
            ) as e
        $sql$
        else format(
            '(select e.* from workflow_audit as e where %s e.seq < $2 and e.seq >= $3 order by e.seq desc limit $4) as e',
            case when of_tenant is not null then 'e.tenant = $5 and' end
        )
    end;
    slice := greatest(1, slice / greatest(1, cardinality(keys)));
    -- The place where the slice ends: of several keys, that of the one whose rows end first.
    execute format(
        'select max(s.last) from (select min(e.seq) as last from %s %s having count(*) = $4) as s',
        source, case when keys <> '{}' then 'group by k.key' end
    ) into last using keys, under, first, slice, of_tenant;
    open records no scroll for execute format(
        $sql$
            select json_build_object(
                'seq', e.seq, 'at', shown_at(e.at), 'tenant', e.tenant, 'key_id', e.key_id, 'key_name', e.key_name,
                'action', e.action, 'target', e.target, 'outcome', e.outcome, 'code', e.code, 'request', e.request
            )::text from %s where %s order by e.seq desc limit $6
        $sql$,
        source, concat_ws(
            ' and ', 'true',
            case when of_tenant is not null then 'e.tenant = $5' end,
            case when actions <> '{}' then 'e.action = any($7)' end,
            case when since is not null then 'e.at >= $8' end,
            case when until is not null then 'e.at < $9' end
        )
    )
    using keys, under, coalesce(last, first), slice, of_tenant, greatest(0, most), actions, since, until;
    return json_build_object('entries', page_of(records, budget), 'after', last);
end $$;

create or replace function remove_audit(now timestamptz, most integer) returns integer language plpgsql as $$
declare
    removed integer;
begin
    delete from workflow_audit as e where e.seq = any(array(
        select o.seq from workflow_audit as o where o.at <= now - span(90 * 86400) order by o.at limit most
    ));
    get diagnostics removed = row_count;
    return removed;
end $$;

-- Signing keys, newest first. Bytes travel as base64.

create or replace function signing_records() returns json language plpgsql stable as $$
begin
    return (
        select coalesce(json_agg(json_build_object(
            'id', k.id, 'secret', encode(k.secret, 'base64'), 'created_at', shown_at(k.created_at)
        ) order by k.id desc), '[]')
        from (select * from workflow_signing_key as s order by s.id desc limit 2) as k
    );
end $$;

create or replace function signing_keys(fresh text) returns json language plpgsql set search_path from current as $$
begin
    if exists (select 1 from workflow_signing_key) then
        return signing_records();
    end if;
    return put_signing_key(fresh, true);
end $$;

create or replace function add_signing_key(fresh text) returns json language plpgsql set search_path from current as $$
begin
    return put_signing_key(fresh, false);
end $$;

-- `first`: only if there is none. The lock makes callers at the same time get the same key.
create or replace function put_signing_key(fresh text, first boolean) returns json language plpgsql as $$
declare
    now timestamptz := clock();
    newest bytea;
begin
    if length(decode(fresh, 'base64')) is distinct from 32 then
        perform refuse('UsageError', 'fresh: give 32 random bytes for a signing key');
    end if;
    perform refuse_old_snapshot();
    perform pg_advisory_xact_lock(1752132457, -1);
    newest := (select k.secret from workflow_signing_key as k order by k.id desc limit 1);
    if newest is null or not first and newest <> decode(fresh, 'base64') then
        insert into workflow_signing_key (secret, created_at) values (decode(fresh, 'base64'), now);
        delete from workflow_signing_key as k
        where k.id not in (select s.id from workflow_signing_key as s order by s.id desc limit 2);
    end if;
    return signing_records();
end $$;
