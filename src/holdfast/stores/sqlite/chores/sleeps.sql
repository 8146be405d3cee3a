-- Fast path for due sleeps of code runs. It does to many sleeps what machine/settling.py and waking.py do to one.

-- :simple    Sleeps whose runs wait, so nothing else has to be decided. A run with two due sleeps goes through the machine.
select step.run_id, step.key from json_each(:due) as due
cross join workflow_step as step on step.run_id = due.value ->> 0 and step.key = due.value ->> 1
cross join workflow_run as run on run.id = step.run_id
where step.kind = 'sleep' and step.status = 'waiting' and step.due_at <= :now
    and run.status = 'waiting' and run.kind = 'code' and run.deleted_at is null

-- :settle
update workflow_step
set seq = 1 + max(
        (select max(seq) from workflow_step as other where other.run_id = workflow_step.run_id),
        (select step_mark from workflow_run where id = workflow_step.run_id)
    ),
    status = 'succeeded', output = 'null', finished_at = :now
where (run_id, key) in (select value ->> 0, value ->> 1 from json_each(:sleeps))

-- :wake
update workflow_run
set status = 'pending', run_at = :now, attempt = 0, crashes = 0, survived = 0, waiting_on = null, wait_topic = null,
    deadline_at = null, updated_at = :now, rev = rev + 1
where id in (select value ->> 0 from json_each(:sleeps))

-- :woken
insert into workflow_event (workflow_id, event_type, data, created_at)
select value ->> 0, 'woken', json_object('step', value ->> 1, 'status', 'pending'), :now from json_each(:sleeps)
