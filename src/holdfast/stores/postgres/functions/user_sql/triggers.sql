-- The triggers of user SQL. Writes of the verbs skip them: their `rev` has grown, and their trail rows are not `told`.
-- Those of labels are for all writes, but only for runs with labels; those of counts are for all writes.
-- A trigger is created again only when its definition has changed, because that locks its table; so each trigger has
-- its definition as a comment.

do $$
declare
    t record;
begin
    for t in select * from (values
        ('plain_1_start', 'workflow_run',
            'before insert on workflow_run for each row when (new.rev = 0) execute function plain_start()'),
        ('plain_2_started', 'workflow_run',
            'after insert on workflow_run for each row when (new.rev = 0) execute function plain_started()'),
        -- Both do the same, and after the first the second is skipped. The first knows that the statement gave a
        -- reason, even if it is the same as the last time.
        ('plain_3_update_why', 'workflow_run',
            'before update of run_at, last_error, error on workflow_run for each row when (new.rev = old.rev)
             execute function plain_update(''why'')'),
        ('plain_4_update', 'workflow_run',
            'before update on workflow_run for each row when (new.rev = old.rev) execute function plain_update()'),
        ('plain_5_remove', 'workflow_run',
            'before delete on workflow_run for each row execute function plain_remove()'),
        ('plain_1_tell', 'workflow_event',
            'before insert on workflow_event for each row when (new.told) execute function plain_tell()'),
        ('labels_1_started', 'workflow_run',
            'after insert on workflow_run for each row when (new.labels is not null) execute function keep_labels()'),
        ('labels_2_changed', 'workflow_run',
            'after update of labels on workflow_run for each row
             when (old.labels::text is distinct from new.labels::text) execute function keep_labels()'),
        ('labels_3_removed', 'workflow_run',
            'after delete on workflow_run for each row when (old.labels is not null) execute function keep_labels()'),
        ('counts_1_added', 'workflow_run',
            'after insert on workflow_run referencing new table as new_rows
             for each statement execute function count_added()'),
        ('counts_2_moved', 'workflow_run',
            'after update on workflow_run referencing old table as old_rows new table as new_rows
             for each statement execute function count_moved()'),
        ('counts_3_removed', 'workflow_run',
            'after delete on workflow_run referencing old table as old_rows
             for each statement execute function count_removed()'),
        ('counts_4_truncated', 'workflow_run',
            'after truncate on workflow_run for each statement execute function count_truncated()'),
        ('counts_1_told', 'workflow_event',
            'after insert on workflow_event for each row
             when (new.event_type in (''retried'', ''lease_expired'') and not new.told) execute function count_told()')
    ) as t (name, of_table, words)
    loop
        continue when exists (
            select 1 from pg_trigger as g
            where g.tgrelid = t.of_table::regclass and g.tgname = t.name
                and obj_description(g.oid, 'pg_trigger') = t.words
        );
        -- A drop, even of none, waits for all readers of the table.
        if exists (select 1 from pg_trigger as g where g.tgrelid = t.of_table::regclass and g.tgname = t.name) then
            execute format('drop trigger %I on %I', t.name, t.of_table);
        end if;
        execute format('create trigger %I %s', t.name, t.words);
        execute format('comment on trigger %I on %I is %L', t.name, t.of_table, t.words);
    end loop;
end $$;
