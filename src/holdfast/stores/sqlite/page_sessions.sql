-- :one
select id_hash, key_id, secret_hash, idle_seconds, created_at, seen_at, ends_at, expires_at
from workflow_page_session where id_hash = :id_hash

-- :insert
insert into workflow_page_session
(id_hash, key_id, secret_hash, idle_seconds, created_at, seen_at, ends_at, expires_at)
values (:id_hash, :key_id, :secret_hash, :idle_seconds, :created_at, :seen_at, :ends_at, :expires_at)

-- :forget_oldest    Of one key only the newest stay.
delete from workflow_page_session where id_hash in (
    select id_hash from workflow_page_session where key_id = :key_id and id_hash <> :id_hash
    order by created_at desc, id_hash desc limit -1 offset :most
)

-- :use
update workflow_page_session set seen_at = :seen_at, ends_at = :ends_at where id_hash = :id_hash

-- :end
delete from workflow_page_session where id_hash = :id_hash

-- :ended
select id_hash from workflow_page_session where ends_at <= :now order by ends_at limit :limit

-- :remove
delete from workflow_page_session where id_hash in (select value from json_each(:ids))
