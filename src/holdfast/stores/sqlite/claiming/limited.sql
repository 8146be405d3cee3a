-- :go_back    Remove claims that lie more than one period in the future: the clock was wrong when they were made.
delete from workflow_limit_use where scope = :scope and name = :name and at > :until

-- :use    Record claims, never earlier than the last one, even when the clock was turned back.
insert into workflow_limit_use (scope, name, at, number, taken, gone_at)
select :scope, :name, max(:now, coalesce(max(at), 0)), coalesce(max(number), 0) + :taken, :taken,
    max(:now, coalesce(max(at), 0)) + :period
from workflow_limit_use where scope = :scope and name = :name
on conflict (scope, name, at) do update set number = excluded.number, taken = taken + excluded.taken

-- :forget_used    Remove some uses that no rate counts any more: more than a claim adds.
delete from workflow_limit_use
where (scope, name, at) in (
    select scope, name, at from workflow_limit_use where gone_at <= :now order by gone_at limit :some
)

-- :book    The turns of one kind of worker.
select id, passed from workflow_limit_book where asks = :asks and used_at > :since

-- :places
select tenant, at from workflow_limit_place where book = :book

-- :turn
insert into workflow_limit_book (asks, passed, used_at) values (:asks, :passed, :now)
on conflict (asks) do update set passed = excluded.passed, used_at = excluded.used_at
returning id

-- :place
insert into workflow_limit_place (book, tenant, at)
select :book, value ->> 0, value ->> 1 from json_each(:places) where true
on conflict (book, tenant) do update set at = excluded.at

-- :leave
delete from workflow_limit_place where book = :book and tenant in (select value from json_each(:tenants))

-- :forget_places
delete from workflow_limit_place where book in (select id from workflow_limit_book where used_at <= :since)

-- :forget_books
delete from workflow_limit_book where used_at <= :since
