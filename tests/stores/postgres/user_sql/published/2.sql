-- start
insert into workflow.workflow_run (type, payload, idempotency_key)
values (:'type', :'payload', :'key')
on conflict (idempotency_key) do nothing
returning id;

-- start_later
insert into workflow.workflow_run (type, payload, idempotency_key, tenant, priority, run_at, labels)
values (:'type', :'payload', :'key', :'tenant', 10, now() + interval '1 hour', '{"team": "billing"}')
on conflict (idempotency_key) do nothing
returning id;

-- find
select id, status from workflow.workflow_run where idempotency_key = :'key';

-- find_of_tenant
select id, status from workflow.workflow_run where idempotency_key = :'tenant' || U&'\001F' || :'key';

-- look
select status, result, last_error, attempt from workflow.workflow_run where id = :'id';

-- trail
select id, event_type, data, created_at from workflow.workflow_event where workflow_id = :'id' order by id;

-- counts
select type, status, number from workflow.workflow_counts where tenant = 'default' order by type, status;

-- cancel
update workflow.workflow_run set status = 'cancelled', updated_at = now()
where id = :'id' and status in ('pending', 'leased', 'waiting', 'paused')
returning id;

-- delete
update workflow.workflow_run set deleted_at = now() where id = :'id' and deleted_at is null returning id;

-- restore
update workflow.workflow_run set deleted_at = null where id = :'id' and deleted_at is not null returning id;

-- hurry
update workflow.workflow_run set priority = 1, run_at = now() where id = :'id' and status = 'pending' returning id;

-- take
with next as (
    select id from workflow.workflow_run
    where type = :'type' and kind = 'code' and status = 'pending' and run_at <= now() and deleted_at is null
    order by priority, run_at, id limit 1
    for update skip locked
)
update workflow.workflow_run as r
set status = 'leased', leased_by = :'me', lease_until = now() + interval '30 seconds'
from next where r.id = next.id
returning r.id, r.payload;

-- take_by_prefix
with next as (
    select id from workflow.workflow_run_claimable
    where type like :'prefix' and (runtime is null or runtime = :'runtime')
    order by priority, run_at, id limit 1
    for update skip locked
)
update workflow.workflow_run as r
set status = 'leased', leased_by = :'me', lease_until = now() + interval '30 seconds'
from next where r.id = next.id
returning r.id, r.type, r.payload;

-- heartbeat
update workflow.workflow_run set lease_until = now() + interval '30 seconds'
where id = :'id' and status = 'leased' and leased_by = :'me'
returning pause_asked_by;

-- succeed
update workflow.workflow_run set status = 'succeeded', result = :'result'
where id = :'id' and status = 'leased' and leased_by = :'me'
returning id;

-- fail
update workflow.workflow_run set status = 'failed', last_error = :'error'
where id = :'id' and status = 'leased' and leased_by = :'me'
returning id;

-- retry
update workflow.workflow_run
set status = 'pending', last_error = :'error', run_at = now() + make_interval(secs => :'seconds')
where id = :'id' and status = 'leased' and leased_by = :'me'
returning status;

-- give_back
update workflow.workflow_run set status = 'pending'
where id = :'id' and status = 'leased' and leased_by = :'me'
returning id;

-- tell
insert into workflow.workflow_event (workflow_id, event_type, data) values (:'id', :'what', :'data');

-- steps
select seq, name, kind, status, attempts, leased_by, lease_until, run_at, topic, due_at, output, error, cost
from workflow.workflow_step_live where run_id = :'id' order by seq;

-- runs
select id, type, status, cursor, idempotency_key, waiting_on, attempt, last_error, created_at
from workflow.workflow_run_live where status in ('waiting', 'paused', 'failed') order by id desc limit 50;

-- emit
select workflow.emit(json_build_object('topic', :'topic', 'id', :'event', 'payload', :'payload'));
select workflow.deliver_event('default', :'event', null, 500);

-- keep
select workflow.expire(500);
select workflow.time_out(500);
select workflow.lapse(null, true, 500);
select workflow.deliver(null, 500);
select workflow.fold_counts(5000);

-- start_by_function
select workflow.start(json_build_array(json_build_object(
    'id', gen_random_uuid(), 'type', :'type', 'params', :'payload', 'digest', :'digest', 'tenant', 'default', 'priority', 100
)));

-- claim
select workflow.claim(json_build_object('worker', :'me', 'types', json_build_array(:'type'), 'limit', 10, 'lease_seconds', 30));

-- renew
select workflow.renew(:'me', json_build_array(json_build_object('run', :'id', 'fence', :'fence')), 30);

-- commit
select workflow.commit(json_build_array(json_build_object(
    'run', :'id', 'fence', :'fence', 'number', 1, 'move', 'complete', 'result', :'result', 'lease_seconds', 30,
    'steps', '[]'::json, 'trail', '[]'::json, 'events', '[]'::json, 'starts', '[]'::json, 'outbox', '[]'::json
)), null, null, null, true);

-- pause
select workflow.pause(:'id', null, :'me');
select workflow.resume(:'id', null, :'me');

-- cancel_by_function
select workflow.cancel(:'id', null, :'me', true);

-- cancel_pending_or_leased
update workflow.workflow_run set status='cancelled', updated_at=now() where id=:'id' and status in ('pending','leased');
