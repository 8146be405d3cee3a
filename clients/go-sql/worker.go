// Package holdfastsql executes one-shot runs of Holdfast with plain SQL statements on Postgres: no server, no steps. A
// run is one call of a function; what must happen once needs the run's id as a key, because a crash repeats the call.
//
// The statements are those of docs/sql.md. Triggers of the database keep fence, attempts and trail. Beside such a worker
// any other one may work on the same types: in Python, over HTTP, or psql.
package holdfastsql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/big"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const firstPause = 100 * time.Millisecond // before a statement is sent again

// Config of a worker. Only DB has no default.
type Config struct {
	DB            *sql.DB
	Schema        string                    // schema of the store; workflow
	WorkerID      string                    // name of this process, unique; host:pid:random
	Runtime       string                    // as the registry names it; go
	LeaseDuration time.Duration             // after this time without a heartbeat the run goes to another worker; 30 s
	Poll          time.Duration             // how often to look for work when there is none; 1 s
	Slots         int                       // how many runs to execute at once; 4
	Grace         time.Duration             // how long runs may go on after a stop; 30 s
	Backoff       func(n int) time.Duration // how long to wait after the n-th failure; Quadratic
	Log           *log.Logger
}

// Run is a run that this worker holds.
type Run struct {
	ID      string
	Type    string
	Payload json.RawMessage // exactly as it was written
	Attempt int             // the number of this try, from 1; crashes are not counted
	fence   int64           // of the lease
	worker  *Worker
}

// Handler executes a run. Its value is the result, as JSON. An error makes the run pending again, later; see [Fatal]. ctx
// ends when the run is cancelled or lost.
type Handler func(ctx context.Context, run *Run) (any, error)

// Worker takes runs and executes them. Make it with [New], call [Worker.Handle], then [Worker.Run].
type Worker struct {
	config   Config
	handlers []prefixed
	sql      statements
	running  sync.WaitGroup
	slots    chan struct{}
}

type prefixed struct {
	pattern string // for like
	matches *regexp.Regexp
	handler Handler
}

// New returns a worker.
func New(config Config) *Worker {
	host, _ := os.Hostname()
	set(&config.Schema, "workflow")
	set(&config.WorkerID, fmt.Sprintf("%s:%d:%08x", host, os.Getpid(), below(1<<32)))
	set(&config.Runtime, "go")
	set(&config.LeaseDuration, 30*time.Second)
	set(&config.Poll, time.Second)
	set(&config.Slots, 4)
	set(&config.Grace, 30*time.Second)
	set(&config.Log, log.Default())
	if config.Backoff == nil {
		config.Backoff = Quadratic
	}
	return &Worker{config: config, sql: statementsOf(config.Schema), slots: make(chan struct{}, config.Slots)}
}

var versioned = regexp.MustCompile(`\.v\d+$`)

// Handle registers the function for the types that begin with a prefix, such as "billing.", or for one type, such as
// "billing.invoice.v1". Prefixes are asked in the order in which they were registered.
func (w *Worker) Handle(prefix string, handler Handler) {
	pattern, matches := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(prefix), "^"+regexp.QuoteMeta(prefix)
	if versioned.MatchString(prefix) {
		matches += "$"
	} else {
		pattern += "%"
	}
	w.handlers = append(w.handlers, prefixed{pattern, regexp.MustCompile(matches), handler})
}

// Run executes runs until ctx ends. Then it takes no more, lets those that it has end, and returns. What is not done
// after the grace period is interrupted and given back.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errors.New("holdfastsql: no handler: call Handle first")
	}
	work, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	for ctx.Err() == nil {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		run, handler, err := w.take(ctx)
		if err != nil && ctx.Err() == nil {
			w.config.Log.Printf("holdfastsql: cannot take a run: %v", err)
		}
		if run == nil {
			<-w.slots
			sleep(ctx, w.config.Poll)
			continue
		}
		w.running.Add(1)
		go func() {
			defer func() { <-w.slots; w.running.Done() }()
			w.execute(work, run, handler)
		}()
	}
	grace := time.AfterFunc(w.config.Grace, interrupt)
	defer grace.Stop()
	w.running.Wait()
	return nil
}

// take leases the next run of the first prefix that has one; nil: none is due.
func (w *Worker) take(ctx context.Context) (*Run, Handler, error) {
	for _, one := range w.handlers {
		run := &Run{worker: w}
		var crashes int
		// The answer of a statement that is cancelled may be lost, and with it the run until its lease is over.
		row := w.config.DB.QueryRowContext(detached{ctx}, w.sql.take, one.pattern, w.config.Runtime, w.config.WorkerID, w.lease())
		err := row.Scan(&run.ID, &run.Type, &run.Payload, &run.Attempt, &crashes, &run.fence)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		run.Attempt -= crashes
		return run, w.handler(run.Type), nil
	}
	return nil, nil, nil
}

func (w *Worker) handler(typ string) Handler {
	for _, one := range w.handlers {
		if one.matches.MatchString(typ) {
			return one.handler
		}
	}
	return nil
}

func (w *Worker) lease() float64 { return w.config.LeaseDuration.Seconds() }

// execute calls the handler under a lease that is renewed beside it, and writes the outcome.
func (w *Worker) execute(ctx context.Context, run *Run, handler Handler) {
	held, lose := context.WithCancel(ctx)
	renewed := make(chan bool, 1)
	go func() { renewed <- w.renew(held, run); lose() }()
	result, err := call(held, run, handler)
	lose()
	lost := !<-renewed
	if lost {
		w.config.Log.Printf("holdfastsql: run %s was cancelled or lost", run.ID)
		return
	}
	w.end(ctx, run, result, err)
}

func call(ctx context.Context, run *Run, handler Handler) (result any, err error) {
	defer func() {
		if raised := recover(); raised != nil {
			err = fmt.Errorf("panic: %v\n%s", raised, debug.Stack())
		}
	}()
	return handler(ctx, run)
}

// renew sends heartbeats until ctx ends. It returns false if the run is not held any more, or may not be.
func (w *Worker) renew(ctx context.Context, run *Run) bool {
	for until := time.Now().Add(w.config.LeaseDuration); sleep(ctx, w.config.LeaseDuration/3); {
		sent := time.Now()
		limited, cancel := context.WithTimeout(ctx, w.config.LeaseDuration/3)
		changed, err := w.changes(limited, w.sql.heartbeat, run, w.lease())
		cancel()
		if err == nil && !changed || time.Now().After(until) {
			return false
		}
		if err == nil {
			until = sent.Add(w.config.LeaseDuration)
		}
	}
	return true
}

// end writes the outcome. It repeats the statement while the database does not answer: a run that is not ours any more
// is not changed by it.
func (w *Worker) end(ctx context.Context, run *Run, result any, err error) {
	statement, values := w.outcome(ctx, run, result, err)
	for pause := firstPause; ; pause *= 2 {
		changed, failed := w.changes(context.Background(), statement, run, values...)
		switch {
		case failed == nil && !changed && pause > firstPause: // an earlier statement may have done it, without an answer
			w.config.Log.Printf("holdfastsql: the end of run %s is written, or the run was lost before", run.ID)
			return
		case failed == nil && !changed:
			w.config.Log.Printf("holdfastsql: run %s was lost before its end was written", run.ID)
			return
		case failed == nil:
			return
		case pause > w.config.LeaseDuration:
			w.config.Log.Printf("holdfastsql: the end of run %s cannot be written: %v", run.ID, failed)
			return
		}
		time.Sleep(pause)
	}
}

// outcome returns the statement for the end of a run, and its values.
func (w *Worker) outcome(ctx context.Context, run *Run, result any, err error) (string, []any) {
	if err == nil {
		text, bad := json.Marshal(result)
		if bad == nil {
			return w.sql.succeed, []any{string(text)}
		}
		err = Fatal(fmt.Errorf("the result is no JSON: %w", bad))
	}
	var mark fatal
	switch {
	case ctx.Err() != nil:
		return w.sql.giveBack, nil
	case errors.As(err, &mark):
		recorded, _ := json.Marshal(map[string]string{"kind": "fatal", "type": fmt.Sprintf("%T", mark.error), "message": text(err)})
		return w.sql.fail, []any{text(err), string(recorded)}
	}
	return w.sql.retry, []any{text(err), w.config.Backoff(run.Attempt).Seconds()}
}

// changes writes under the lease of a run. It returns false if this execution holds the run no more.
func (w *Worker) changes(ctx context.Context, statement string, run *Run, values ...any) (bool, error) {
	found, err := w.config.DB.ExecContext(ctx, statement, append(run.lease(), values...)...)
	if err != nil {
		return false, err
	}
	rows, err := found.RowsAffected()
	return rows > 0, err
}

// lease returns the values of the condition of every write.
func (r *Run) lease() []any { return []any{r.ID, r.worker.config.WorkerID, r.fence} }

// Tell adds a row to the trail of the run, for people: it decides nothing.
func (r *Run) Tell(ctx context.Context, what string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = r.worker.config.DB.ExecContext(ctx, r.worker.sql.tell, r.ID, what, string(text))
	return err
}

// IsCancelled looks whether this worker still holds the run. The context of a handler says the same, up to a third of a
// lease later.
func (r *Run) IsCancelled(ctx context.Context) (bool, error) {
	var held bool
	err := r.worker.config.DB.QueryRowContext(ctx, r.worker.sql.held, r.lease()...).Scan(&held)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return !held, err
}

type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal marks an error that no retry helps against: the run fails at once.
func Fatal(err error) error { return fatal{err} }

// Quadratic waits 1, 4, 9, … minutes, and up to 10 % more by chance.
func Quadratic(n int) time.Duration {
	if n < 1 {
		n = 1
	}
	delay := time.Duration(n*n) * time.Minute
	return delay + time.Duration(below(int64(delay)/10))
}

// below draws a number from 0 to n-1. math/rand has the same numbers in every process before Go 1.20.
func below(n int64) int64 {
	drawn, err := rand.Int(rand.Reader, big.NewInt(n))
	if err != nil {
		return 0
	}
	return drawn.Int64()
}

// text returns the message of an error; Postgres keeps no NUL.
func text(err error) string { return strings.ReplaceAll(err.Error(), "\x00", `\0`) }

// detached is a context whose end is not seen.
type detached struct{ context.Context }

func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }
func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func set[T comparable](option *T, otherwise T) {
	var empty T
	if *option == empty {
		*option = otherwise
	}
}
