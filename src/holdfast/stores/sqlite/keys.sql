-- :columns    In the order of ApiKey.
id, tenant, name, scopes, patterns, secret_hash, old_secret_hash, old_secret_until, expires_at, rate, open_runs_max,
created_at, created_by, last_used_at, rotated_at, revoked_at, revoked_by

-- :one
select $columns from workflow_api_key where id = :id

-- :list
select $columns from workflow_api_key where id > :after order by id limit :limit

-- :list_of_tenant
select $columns from workflow_api_key where tenant = :tenant and id > :after order by id limit :limit

-- :namesake    A live key of this name.
select id from workflow_api_key
where tenant = :tenant and name = :name and revoked_at is null and (expires_at is null or expires_at > :now)
order by id limit 1

-- :insert
insert into workflow_api_key (
    id, tenant, name, scopes, patterns, secret_hash, expires_at, rate, open_runs_max, created_at, created_by
)
values (:id, :tenant, :name, :scopes, :patterns, :secret_hash, :expires_at, :rate, :open_runs_max, :now, :by)

-- :rotate
update workflow_api_key
set old_secret_hash = secret_hash, old_secret_until = :until, secret_hash = :secret_hash, rotated_at = :now
where id = :id

-- :revoke
update workflow_api_key set revoked_at = :now, revoked_by = :by where id = :id

-- :unused    The keys, of these, whose last use has to be written.
select id from workflow_api_key
where id in (select value from json_each(:ids)) and (last_used_at is null or last_used_at <= :since)

-- :use
update workflow_api_key set last_used_at = :now
where id in (select value from json_each(:ids)) and (last_used_at is null or last_used_at <= :since)

-- :signing
select id, secret, created_at from workflow_signing_key order by id desc limit :most

-- :add_signing
insert into workflow_signing_key (secret, created_at) values (:secret, :now)

-- :forget_signing
delete from workflow_signing_key
where id not in (select id from workflow_signing_key order by id desc limit :most)

-- :note
insert into workflow_audit (at, tenant, key_id, key_name, action, target, outcome, code, request)
values (:at, :tenant, :key_id, :key_name, :action, :target, :outcome, :code, :request)

-- :audit
select seq, at, tenant, key_id, key_name, action, target, outcome, code, request from workflow_audit $index
where $terms order by seq desc limit :limit

-- :audit_first    The row that is first in time, from an instant on.
select seq from workflow_audit where at >= :at order by at, seq limit 1

-- :audit_last    The row that is last in time, before an instant.
select seq from workflow_audit where at < :at order by at desc, seq desc limit 1

-- :audit_floor    Where a slice of so many rows ends; nothing: it holds all that are left.
select seq from workflow_audit $index where $terms order by seq desc limit 1 offset :rows - 1

-- :audit_floor_of_keys    The same, with as many rows of each key.
select max(one.seq) from (
    select (
        select seq from workflow_audit indexed by idx_workflow_audit_key
        where key_id = wanted.value and key_id <> '' and $terms
        order by seq desc limit 1 offset max(1, :rows / json_array_length(:keys)) - 1
    ) as seq from json_each(:keys) as wanted
) as one

-- :ended_keys    API keys that ended long ago; not the one with the greatest id.
select id from workflow_api_key where revoked_at is not null and revoked_at <= :since
and id < (select max(id) from workflow_api_key)
union select id from workflow_api_key where expires_at is not null and expires_at <= :since
and id < (select max(id) from workflow_api_key)
limit :limit

-- :remove_keys
delete from workflow_api_key where id in (select value from json_each(:ids))

-- :old_audit
select seq from workflow_audit where at <= :since order by at limit :limit

-- :remove_audit
delete from workflow_audit where seq in (select value from json_each(:seqs))
