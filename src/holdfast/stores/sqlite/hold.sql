-- THE guard of every write of a holder: still leased, under his fence, and the lease has not run out.
select attempt, crashes, lease_until, pause_asked_by, started_fence, commit_fence, commit_no, commit_answer, step_mark,
    kind, cost, budget, tenant
from workflow_run
where id = :run and status = 'leased' and fence = :fence and lease_until >= :now
