-- Whose turn it is, where tenants have weights: a book for each kind of worker, those that ask for the same types, tenants
-- and runtime. Each tenant that has due runs stands at a place in it, and the lowest is next; a claim puts its tenant a
-- stride behind the place that was served, and so does the first claim that meets it. Of those who have nothing due
-- nothing is kept.

create or replace function book_of(ask json) returns text language plpgsql stable as $$
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

-- The book, and who has due runs with the place of each: first those that are not full as a whole, so many are `open`,
-- and of them the next first. `met`: those that the book does not know yet.
create or replace function turns_of(
    asks text, types text[], tenants text[], now timestamptz,
    out book bigint, out passed bigint, out names text[], out places bigint[], out met text[], out open integer
) language plpgsql stable as $$
declare
    due text[] := array(
        select distinct h.tenant from lane_heads(types, tenants, now) as h where h.run_at <= now
    );
begin
    select b.id, b.passed into book, passed from workflow_limit_book as b
    where b.asks = turns_of.asks and b.used_at > now - interval '1 day';
    passed := coalesce(passed, 0);
    met := array(
        select d.tenant from unnest(due) as d (tenant) where not exists (
            select 1 from workflow_limit_place as p where p.book = turns_of.book and p.tenant = d.tenant
        )
    );
    select coalesce(array_agg(t.tenant order by t.is_full, t.at, t.tenant), '{}'),
        coalesce(array_agg(t.at order by t.is_full, t.at, t.tenant), '{}'), count(*) filter (where not t.is_full)
    into names, places, open
    from (
        select w.tenant, w.at, coalesce(m.room <= 0, false) as is_full
        from (
            select p.tenant, p.at from workflow_limit_place as p
            where p.book = turns_of.book and p.tenant = any(due)
            union all
            select s.tenant collate "C", turns_of.passed + s.stride from strides_of(met) as s
        ) as w
        left join rooms('tenant', due, now) as m on m.name = w.tenant
    ) as t;
end $$;

-- Remember who waits, and where.
create or replace function note_turns(
    asks text, book bigint, met text[], names text[], places bigint[], begun integer, passed bigint, now timestamptz
) returns void language plpgsql as $$
#variable_conflict use_column
declare
    since timestamptz := now - interval '1 day';
    kept bigint;
begin
    if note_turns.book is null then  -- a worker of a new kind: others may be gone
        delete from workflow_limit_place as p
        where p.book in (select b.id from workflow_limit_book as b where b.used_at <= since);
        delete from workflow_limit_book as b where b.used_at <= since;
    end if;
    insert into workflow_limit_book as b (asks, passed, used_at) values (note_turns.asks, note_turns.passed, now)
    on conflict (asks) do update set passed = excluded.passed, used_at = excluded.used_at
    returning b.id into kept;
    insert into workflow_limit_place as p (book, tenant, at)
    select kept, t.tenant, t.at from unnest(names, places) with ordinality as t (tenant, at, number)
    where t.number <= begun or t.tenant = any(met)
    on conflict (book, tenant) do update set at = excluded.at where p.at <> excluded.at;
    delete from workflow_limit_place as p where p.book = kept and p.tenant <> all(names);
end $$;
