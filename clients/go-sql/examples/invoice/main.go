// Command invoice is a plain-SQL worker for all types that begin with billing.
//
//	DATABASE_URL=postgresql://app@localhost/shop go run ./examples/invoice
//	psql -c "insert into workflow.workflow_run (type, payload) values ('billing.invoice.v1', '{\"order\": 42, \"cents\": 1999}')"
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/lib/pq"

	"holdfast.internal/holdfastsql"
)

type invoice struct {
	Order   int     `json:"order"`
	Cents   int     `json:"cents"`
	Seconds float64 `json:"seconds"` // how long the printer takes
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	lease, _ := time.ParseDuration(os.Getenv("LEASE")) // 30 s if it is not set
	worker := holdfastsql.New(holdfastsql.Config{DB: db, WorkerID: os.Getenv("WORKER_ID"), LeaseDuration: lease, Poll: 100 * time.Millisecond})
	worker.Handle("billing.", print)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// print makes an invoice. The id of the run is the key for the outside world: a crash may repeat the call.
func print(ctx context.Context, run *holdfastsql.Run) (any, error) {
	var wanted invoice
	if err := json.Unmarshal(run.Payload, &wanted); err != nil {
		return nil, holdfastsql.Fatal(err)
	}
	if err := run.Tell(ctx, "printing", map[string]any{"order": wanted.Order, "attempt": run.Attempt}); err != nil {
		return nil, err
	}
	log.Printf("printing %s", run.ID)
	select {
	case <-time.After(time.Duration(wanted.Seconds * float64(time.Second))):
	case <-ctx.Done():
		log.Printf("interrupted %s", run.ID)
		return nil, ctx.Err()
	}
	switch {
	case wanted.Cents < 0:
		return nil, holdfastsql.Fatal(errors.New("an invoice has no negative sum"))
	case wanted.Cents == 0:
		return nil, errors.New("the printer is out of paper")
	}
	return map[string]string{"number": fmt.Sprintf("R-%d", wanted.Order)}, nil
}
