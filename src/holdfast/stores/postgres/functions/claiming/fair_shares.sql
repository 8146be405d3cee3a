-- Fair shares: the order of tenants where tenants have weights. Each kind of worker (same types, tenants and runtime)
-- has a book, a row of workflow_limit_book. Each tenant with due runs has a place in the book, and the tenant with the
-- lowest place is next. A claim moves its tenant to the place that was served plus one stride; a tenant that the book
-- does not know yet starts there too. A tenant without due runs has no place.

create or replace function book_name(ask json) returns text language plpgsql stable as $$
begin
    return (
        select json_build_array(
            array(select distinct t collate "C" as t from unnest(texts(ask -> 'types')) as t order by t),
            case when texts(ask -> 'tenants') is not null
                then array(select distinct t collate "C" as t from unnest(texts(ask -> 'tenants')) as t order by t) end,
            ask ->> 'runtime'
        )::text
    );
end $$;

-- The book, and the tenants that have due runs with their places. Tenants that are below their limits come first, in
-- order of service; `open` is how many these are. `newcomers`: tenants that the book does not know yet.
create or replace function turns_of(
    asks text, types text[], tenants text[], now timestamptz,
    out book bigint, out passed bigint, out names text[], out places bigint[], out newcomers text[], out open integer
) language plpgsql stable as $$
declare
    due text[] := array(
        select distinct h.tenant from lane_heads(types, tenants, now) as h where h.run_at <= now
    );
begin
    select b.id, b.passed into book, passed from workflow_limit_book as b
    where b.asks = turns_of.asks and b.used_at > now - interval '1 day';
    passed := coalesce(passed, 0);
    newcomers := array(
        select d.tenant from unnest(due) as d (tenant) where not exists (
            select 1 from workflow_limit_place as p where p.book = turns_of.book and p.tenant = d.tenant
        )
    );
    select coalesce(array_agg(t.tenant order by t.is_full, t.at, t.tenant), '{}'),
        coalesce(array_agg(t.at order by t.is_full, t.at, t.tenant), '{}'), count(*) filter (where not t.is_full)
    into names, places, open
    from (
        select w.tenant, w.at, coalesce(m.quota <= 0, false) as is_full
        from (
            select p.tenant, p.at from workflow_limit_place as p
            where p.book = turns_of.book and p.tenant = any(due)
            union all
            select s.tenant collate "C", turns_of.passed + s.stride from strides_of(newcomers) as s
        ) as w
        left join quotas('tenant', due, now) as m on m.name = w.tenant
    ) as t;
end $$;

-- Store the places of the tenants that wait.
create or replace function note_turns(
    asks text, book bigint, newcomers text[], names text[], places bigint[], begun integer, passed bigint, now timestamptz
) returns void language plpgsql as $$
#variable_conflict use_column
declare
    since timestamptz := now - interval '1 day';
    kept bigint;
begin
    if note_turns.book is null then  -- a new kind of worker: other kinds may be gone
        delete from workflow_limit_place as p
        where p.book in (select b.id from workflow_limit_book as b where b.used_at <= since);
        delete from workflow_limit_book as b where b.used_at <= since;
    end if;
    insert into workflow_limit_book as b (asks, passed, used_at) values (note_turns.asks, note_turns.passed, now)
    on conflict (asks) do update set passed = excluded.passed, used_at = excluded.used_at
    returning b.id into kept;
    insert into workflow_limit_place as p (book, tenant, at)
    select kept, t.tenant, t.at from unnest(names, places) with ordinality as t (tenant, at, number)
    where t.number <= begun or t.tenant = any(newcomers)
    on conflict (book, tenant) do update set at = excluded.at where p.at <> excluded.at;
    delete from workflow_limit_place as p where p.book = kept and p.tenant <> all(names);
end $$;
