-- Open runs that can never continue. No move leaves such a run behind. The table refuses a pending run without its
-- time, a leased run without its end and a paused run without a status to resume to; what remains is a wait for
-- nothing.
create or replace function stuck(lim integer) returns json
language plpgsql stable set search_path from current as $$
begin
    return (
        select coalesce(json_agg(lost.id order by lost.id), '[]') from (
            select w.id from workflow_run as w
            where w.status in ('waiting', 'paused') and (w.status = 'waiting' or w.resume_to = 'waiting')
                and w.deleted_at is null
                and not exists (
                    select 1 from workflow_step as s
                    where s.run_id = w.id and s.status = 'waiting' and s.finished_at is null
                        and (s.due_at is not null or s.topic is not null or s.kind in ('approval', 'child'))
                )
            order by w.id limit greatest(0, lim)
        ) as lost
    );
end $$;
