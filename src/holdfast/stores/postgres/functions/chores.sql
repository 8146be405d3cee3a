-- Whether a keeper would find anything: one look, for most rounds find nothing.
create or replace function chore_is_due(wait_timeouts boolean) returns boolean language plpgsql stable
set search_path from current set plan_cache_mode = force_generic_plan set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
    return coalesce(next_chore(wait_timeouts) <= clock(), false);
end $$;
