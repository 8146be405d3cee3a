-- Expire one slice of leases that have ended: the run goes into the queue, into a pause that was asked for, or fails
-- when it crashed too often. Leases have no index by time, so that a renewal changes no index; all leases are read.
-- Rows that another session has locked are left: that session renews, writes or expires them itself.
create or replace function expire(lim integer) returns json
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
    now timestamptz := clock();
    r workflow_run;
    done integer := 0;
    failed uuid[] := '{}';
begin
    for r in
        select w.* from workflow_run as w where w.status = 'leased' and w.lease_until < now
        limit greatest(0, lim) for no key update skip locked
    loop
        done := done + 1;
        if expire_run(r, now) then
            failed := failed || r.id;
        end if;
    end loop;
    if done > 0 then
        perform hint();
    end if;
    return json_build_object('done', done, 'failed', failed);
end $$;

-- Returns true when the run has failed.
create or replace function expire_run(r workflow_run, now timestamptz) returns boolean language plpgsql as $$
declare
    message text := 'the lease of ' || r.leased_by || ' ran out';
begin
    r.crashes := r.crashes + 1;
    perform note(r.id, 'lease_expired', json_build_object('worker', r.leased_by, 'crashes', r.crashes)::text, now);
    if r.crashes >= r.max_crashes then
        perform fail_overdue(r, 'lease_expired', message, now);
        return true;
    end if;
    update workflow_run as w
    set status = case when w.pause_asked_by is null then 'pending' else 'paused' end,
        resume_to = case when w.pause_asked_by is not null then 'pending' end,
        run_at = now + span(crash_delay(r.crashes)), crashes = r.crashes, fence = w.fence + 1, leased_by = null,
        lease_until = null, last_error = 'lease_expired: ' || message,
        error = blame('lease_expired', message, null), updated_at = now, rev = w.rev + 1
    where w.id = r.id;
    if r.pause_asked_by is not null then
        perform note(r.id, 'paused', json_build_object('by', r.pause_asked_by)::text, now);
    end if;
    return false;
end $$;

-- Seconds before a run whose lease expired may be claimed again: none the first time. The same as in every store.
create or replace function crash_delay(crashes integer) returns double precision language sql immutable as $$
    select case when crashes <= 1 then 0 else least(3600, power(2, least(crashes - 1, 12))) end
$$;
