package holdfastsql

import "strings"

// statements are those of docs/sql.md, with the columns that a worker needs.
type statements struct {
	take, heartbeat, held, succeed, fail, retry, giveBack, tell string
}

// mine is the condition of every write. The name keeps a worker from another one's run; the fence keeps an execution that
// has lost the run from writing when the same worker has taken it again.
const mine = `where id = $1 and status = 'leased' and leased_by = $2 and fence = $3`

func statementsOf(schema string) statements {
	runs := `"` + strings.ReplaceAll(schema, `"`, `""`) + `".workflow_run`
	events := strings.TrimSuffix(runs, "run") + "event"
	return statements{
		take: `with next as (
    select id from ` + runs + `_claimable
    where type like $1 and (runtime is null or runtime = $2)
    order by priority, run_at, id limit 1
    for update skip locked
)
update ` + runs + ` as r
set status = 'leased', leased_by = $3, lease_until = now() + make_interval(secs => $4)
from next where r.id = next.id
returning r.id, r.type, r.payload, r.attempt, r.crashes, r.fence`,
		heartbeat: `update ` + runs + ` set lease_until = now() + make_interval(secs => $4) ` + mine,
		held:      `select true from ` + runs + ` ` + mine,
		succeed:   `update ` + runs + ` set status = 'succeeded', result = $4 ` + mine,
		fail:      `update ` + runs + ` set status = 'failed', last_error = $4, error = $5 ` + mine,
		retry: `update ` + runs + ` set status = 'pending', last_error = $4, run_at = now() + make_interval(secs => $5) ` +
			mine,
		giveBack: `update ` + runs + ` set status = 'pending' ` + mine,
		tell:     `insert into ` + events + ` (workflow_id, event_type, data) values ($1, $2, $3)`,
	}
}
