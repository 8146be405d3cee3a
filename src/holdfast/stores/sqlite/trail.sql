-- What happened, beside the change itself, in the same transaction.
insert into workflow_event (workflow_id, event_type, data, created_at) values (:run, :type, :data, :now)
