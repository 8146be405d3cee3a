-- The refusals of user SQL, each with the way that works.

create or replace function refuse_touching(run uuid, touched text[], allowed text[], what text) returns void
language plpgsql as $$
declare
    others text[] := array(select c from unnest(touched) as c where c <> all(allowed));
begin
    if others <> '{}' then
        perform refuse('UsageError', what || ' run ' || run || ' sets ' || array_to_string(others, ', ')
                       || ', which only the database writes: leave it out' || ways(others));
    end if;
end $$;

-- The ways in which these columns get their values, each once; nothing for columns that only the database writes.
create or replace function ways(columns text[]) returns text language plpgsql stable as $$
begin
    return (
        select coalesce('; ' || string_agg(w.way, '; ' order by w.way), '') from (
            select string_agg(c.name, ', ' order by c.name) || ': ' || c.way as way from (
                select name, case
                    when name in ('priority', 'run_at', 'labels') then 'while the run is pending'
                    when name in ('result', 'error', 'last_error', 'progress', 'finished_at')
                        then 'by the worker that holds the run, with a heartbeat or an end'
                    when name in ('leased_by', 'lease_until') then 'with status = ''leased'', by a claim or a heartbeat'
                    when name in ('pause_asked_by', 'resume_to')
                        then 'by select ' || current_schema() || '.pause(run, tenant, who)'
                    when name = 'deleted_at' then 'alone, by an update of nothing else'
                    when name in ('id', 'tenant', 'type', 'payload', 'idempotency_key', 'max_attempts', 'limit_key', 'budget',
                                  'timeout_seconds', 'ttl_seconds', 'parent_id', 'trace')
                        then 'when a run is started: cancel this one and start another'
                end as way from unnest(columns) as name
            ) as c where c.way is not null group by c.way
        ) as w
    );
end $$;

-- Refuse a status that user SQL may not set. The message names the move, and how it is done.
create or replace function refuse_plain(run uuid, wanted text, status text) returns void language plpgsql as $$
declare
    move text := case wanted
        when 'leased' then 'claim' when 'succeeded' then 'complete' when 'failed' then 'fail' when 'cancelled' then 'cancel'
        when 'paused' then 'pause' when 'waiting' then 'park'
        when 'pending' then case when status in ('waiting', 'paused') then 'resume' else 'retry_run' end end;
    way text := case
        when status in ('pending', 'leased', 'waiting') and move = 'pause' then 'pause(run, tenant, who)'
        when status = 'paused' and move = 'resume' then 'resume(run, tenant, who)'
        when status = 'failed' and move = 'retry_run' then 'retry_run(run, tenant, who)'
        when status in ('succeeded', 'cancelled') and move = 'retry_run' then 'rewind(run, step, tenant, who, children)' end;
begin
    if move is null then
        perform refuse('UsageError', '''' || coalesce(wanted, '') || ''' is not a status: pending, leased, waiting, paused, '
                       || 'succeeded, failed or cancelled');
    end if;
    perform refuse('IllegalMove', 'cannot ' || replace(move, '_run', '') || ' run ' || run || ' by an update: it is ' || status
                   || coalesce('; use select ' || current_schema() || '.' || way, ''),
                   json_build_object('run', run, 'move', move, 'status', status, 'hint', ''));
end $$;

-- A run is removed with all its rows, by a purge, which removes the trail first.
create or replace function plain_remove() returns trigger language plpgsql set search_path from current as $$
begin
    perform refuse_other_table(tg_relid, 'workflow_run'::regclass);
    if exists (select 1 from workflow_event as e where e.workflow_id = old.id) then
        perform refuse('UsageError', 'run ' || old.id || ' has rows in other tables: set deleted_at = now() to delete it; '
                       || '`holdfast purge`, or select ' || current_schema() || '.purge(terms), then removes all of it');
    end if;
    return old;
end $$;
