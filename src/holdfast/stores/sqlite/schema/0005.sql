-- How far an event has come that takes several commits: the wait up to which it was handed over.
create table workflow_delivery (
    event_seq integer primary key,
    run_id    text not null,
    step_seq  integer not null
) strict;

create trigger workflow_delivery_over after delete on workflow_inbox begin
    delete from workflow_delivery where event_seq = old.seq;
end;
