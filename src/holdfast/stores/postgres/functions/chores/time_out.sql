-- Fail one slice of runs that have timed out, in any open state. Rows that another session has locked are left: that
-- session moves them itself, or the next call finds them.
create or replace function time_out(lim integer) returns json
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
    now timestamptz := clock();
    r workflow_run;
    failed uuid[] := '{}';
    held boolean := false;
begin
    for r in
        select w.* from workflow_run as w
        where w.timeout_at is not null and w.finished_at is null and w.timeout_at <= now
            and w.status in ('pending', 'leased', 'waiting', 'paused')
        order by w.timeout_at limit greatest(0, lim) for no key update skip locked
    loop
        perform note(r.id, 'timed_out', '{}', now);
        perform fail_overdue(
            r, 'timeout', 'the run did not end within ' || trim_scale(r.timeout_seconds::numeric) || ' s', now
        );
        failed := failed || r.id;
        held := held or r.status = 'leased';
    end loop;
    if failed <> '{}' then
        perform hint_after(case when held then 'leased' end);
    end if;
    return json_build_object('done', cardinality(failed), 'failed', failed);
end $$;

-- Fail an open run by the clock, and for a plan its current step too. `r`: the row before the move;
-- only `r.crashes` is already new.
create or replace function fail_overdue(r workflow_run, kind text, message text, now timestamptz) returns void
language plpgsql as $$
declare
    why json := blame(fail_overdue.kind, message, null);
begin
    update workflow_run as w
    set status = 'failed', crashes = r.crashes, fence = w.fence + 1, leased_by = null, lease_until = null,
        pause_asked_by = null, resume_to = null, waiting_on = null, wait_topic = null, deadline_at = null,
        error = why, last_error = fail_overdue.kind || ': ' || message, finished_at = now,
        owes = w.owes | case when w.parent_step is null then 0 else 1 end,
        expires_at = now + span(w.ttl_seconds), updated_at = now, rev = w.rev + 1
    where w.id = r.id;
    perform end_steps(r, 'failed', why, greatest(0, r.attempt - r.crashes), now);
    perform note(r.id, 'failed', failed_data(fail_overdue.kind, message, r.attempt, r.crashes, r.max_attempts), now);
end $$;
