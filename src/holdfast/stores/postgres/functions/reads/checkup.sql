-- checkup: facts about the server's settings and state that matter to durability and speed. The caller turns them into
-- sentences. The server hides state and times of other roles' sessions, unless the role may read all statistics.

create or replace function checkup() returns json language plpgsql stable set search_path from current as $$
begin
    return json_build_object(
        'version', current_setting('server_version_num')::integer,
        'settings', (
            select json_object_agg(s.name, s.setting) from pg_settings as s
            where s.name in ('fsync', 'synchronous_commit', 'full_page_writes', 'autovacuum', 'track_counts',
                'server_encoding', 'default_transaction_read_only', 'default_transaction_isolation')
        ),
        'schema', (select array_to_json(array[s.major, s.minor, s.functions]) from workflow_schema as s),
        'standby', pg_is_in_recovery(),
        -- The server also hides the kind of other roles' sessions, but shows whether they have a database.
        'connections', (
            select count(*) from pg_stat_activity as a
            where coalesce(a.backend_type = 'client backend', a.datid is not null)
        ),
        'connections_max',
            current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer,
        'idle', coalesce((
            select json_agg(json_build_object(
                'pid', a.pid, 'name', coalesce(nullif(a.application_name, ''), a.usename),
                'seconds', extract(epoch from clock_timestamp() - a.xact_start)::bigint
            ) order by a.xact_start)
            from pg_stat_activity as a
            where a.datname = current_database() and a.state like 'idle in transaction%'
                and a.xact_start < clock_timestamp() - interval '1 minute'
        ), '[]'),
        'prepared', (
            select count(*) from pg_prepared_xacts as p
            where p.database = current_database() and p.prepared < clock_timestamp() - interval '1 minute'
        ),
        'tables', coalesce((
            select json_object_agg(c.relname, json_build_object(
                'rows', coalesce(t.n_live_tup, 0), 'dead', coalesce(t.n_dead_tup, 0),
                'vacuumed', coalesce(not 'autovacuum_enabled=false' = any(c.reloptions), true)
            ))
            from pg_class as c left join pg_stat_user_tables as t on t.relid = c.oid
            where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r'
        ), '{}'),
        'indexes', coalesce((
            select json_object_agg(c.relname, i.indisvalid and i.indisready)
            from pg_class as c join pg_index as i on i.indexrelid = c.oid
            where c.relnamespace = current_schema()::regnamespace
        ), '{}'),
        'unique', coalesce((
            select json_agg(c.relname) from pg_class as c join pg_index as i on i.indexrelid = c.oid
            where c.relnamespace = current_schema()::regnamespace and i.indisunique
        ), '[]'),
        'sees_all', pg_has_role(current_user, 'pg_read_all_stats', 'usage'),
        'now', us(clock_timestamp())
    );
end $$;
