-- The labels of a run in a table of their own, for lists. A run without labels never comes here.

create or replace function keep_labels() returns trigger language plpgsql set search_path from current as $$
begin
    if tg_relid <> 'workflow_run'::regclass then
        perform refuse_other_table(tg_relid, 'workflow_run'::regclass);
    end if;
    -- Nearly all of them: as label_rows does it, without the call.
    if tg_op = 'INSERT' and position('\u' in new.labels::text) = 0 and json_typeof(new.labels) = 'object' then
        insert into workflow_label (name, value, run_id)
        select l.key, left(l.value, 256), new.id from json_each_text(new.labels) with ordinality as l (key, value, place)
        where l.place <= 100 and length(l.key) <= 255 and l.value is not null
        on conflict do nothing;
        return null;
    end if;
    if tg_op <> 'INSERT' and old.labels is not null then
        delete from workflow_label as l using label_rows(old.labels) as o
        where l.name = o.name and l.value = o.value and l.run_id = old.id;
    end if;
    if tg_op <> 'DELETE' and new.labels is not null then
        insert into workflow_label (name, value, run_id)
        select l.name, l.value, new.id from label_rows(new.labels) as l on conflict do nothing;
    end if;
    return null;
end $$;
