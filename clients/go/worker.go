// Package holdfast executes durable workflows: functions that survive the process that runs them. Every step is
// recorded by a Holdfast server before its value is used, and a run that is executed again, by this worker or by one
// in another language, gets the recorded values and goes on behind them.
//
// A worker talks to the server over HTTP only. docs/worker-protocol.md describes what it sends.
package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"
)

const (
	version = "0.1.0"
	noLimit = 1000 // in a claim. The same for all workers, so that the server can group their claims
	nameMax = 180  // characters of a name; a random part follows
)

// Options of a worker. The zero value takes the address from HOLDFAST_URL (or HOLDFAST_STORE) and the API key from
// HOLDFAST_KEY.
type Options struct {
	URL      string        // address of the server
	Key      string        // API key with the scope work
	Tenant   string        // only with a key that has the scope operator: the tenant, or * for all
	Name     string        // begin of the name of this process, which ends in a random part; host:pid if empty
	Runtime  string        // as the registry names it; go
	Prefixes []string      // execute only types that begin with one of these; empty: all that have a handler
	Slots    int           // how many runs to execute at once; 50
	Lease    time.Duration // after this time without a heartbeat another worker takes over; 30 s
	Grace    time.Duration // how long steps may go on after a stop; 30 s
	HTTP     *http.Client
	Log      *log.Logger
}

// Worker executes runs. Make it with [New], register workflows with [Handle], then call [Worker.Run].
type Worker struct {
	options    Options
	handlers   map[string]handler
	connection *connection
	batches    *batches
	wait       time.Duration
	draining   chan struct{} // closed when the worker stops

	mutex   sync.Mutex
	held    map[string]*execution
	claims  claimCount
	abort   func()        // gives up the open claim
	strays  map[held]int  // claims that had begun when a stray was first named
	beaten  chan struct{} // closed after the next heartbeat
	beat    chan struct{} // asks for a heartbeat at once
	changed chan struct{} // a slot became free
	running sync.WaitGroup
	cancel  func()
	refused error // why the server refuses this worker
}

// claimCount counts claims, to know which strays no open claim can bring any more.
type claimCount struct{ begun, ended int }

// handler executes a workflow function on encoded values.
type handler struct {
	call  func(*Context) (value, error)
	retry options
}

// New returns a worker.
func New(options Options) *Worker {
	set(&options.URL, os.Getenv("HOLDFAST_URL"), os.Getenv("HOLDFAST_STORE"))
	set(&options.Key, os.Getenv("HOLDFAST_KEY"))
	host, _ := os.Hostname()
	set(&options.Name, fmt.Sprintf("%s:%d", strings.ReplaceAll(host, "@", "_"), os.Getpid()))
	// Two processes with one name would give back each other's runs as strays.
	options.Name = clipped(options.Name, nameMax) + ":" + random()
	set(&options.Runtime, "go")
	set(&options.Slots, 50)
	set(&options.Lease, 30*time.Second)
	set(&options.Grace, 30*time.Second)
	set(&options.Log, log.Default())
	set(&options.HTTP, &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
	}})
	w := &Worker{
		options: options, handlers: map[string]handler{}, connection: connect(options),
		draining: make(chan struct{}), held: map[string]*execution{}, strays: map[held]int{},
		beaten: make(chan struct{}), beat: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
	w.batches = &batches{connection: w.connection, wake: make(chan struct{}, 1), refused: w.stop}
	return w
}

var versioned = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\.v[1-9][0-9]*$`)

// Handle registers the function that executes runs of a type, such as "shop.order.v1". Of the options, [Backoff] says
// when a run is retried whose function returned an error. It panics for a type without version, or one that has a
// function already: such runs would never be executed.
//
// The function is executed again from its beginning after every wait and every crash. Between its steps it must do the
// same each time: what is random, slow or visible outside belongs into a [Step].
func Handle[P, R any](w *Worker, typ string, run func(*Context, P) (R, error), opts ...Option) {
	if _, twice := w.handlers[typ]; twice || !versioned.MatchString(typ) {
		panic(fmt.Sprintf("holdfast: Handle(%q): give each type once, as domain.action.vN", typ))
	}
	w.handlers[typ] = handler{retry: chosen(opts), call: func(ctx *Context) (value, error) {
		var params P
		if err := decode(ctx.execution.lease.Params, &params); err != nil {
			return nil, &Failure{Kind: "encoding", Message: fmt.Sprintf("the params do not fit %T: %v", params, err)}
		}
		result, err := run(ctx, params)
		if err != nil {
			return nil, err
		}
		return encoded(result, "the result")
	}}
}

// Run executes runs until ctx ends. Then it claims no more, lets running steps end, gives back the runs that are left,
// and returns nil. It returns an error at once if the server refuses this worker.
func (w *Worker) Run(ctx context.Context) error {
	types := w.types()
	if len(types) == 0 {
		return errors.New("holdfast: no workflow to execute: call Handle first, and look at Options.Prefixes")
	}
	if err := w.connection.checked(); err != nil {
		return err
	}
	ctx, w.cancel = context.WithCancel(ctx)
	defer w.cancel()
	found, err := w.register(ctx, types)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	w.wait, w.batches.limits = duration(found.WaitMS), found.Limits
	if most := found.Limits.Leases; most > 0 && w.options.Slots > most { // one heartbeat names all of them
		w.options.Slots = most
	}
	// The last writes are sent after ctx has ended.
	alive, end := context.WithCancel(context.Background())
	defer end()
	go w.batches.run(alive)
	go w.heartbeats(alive)
	go w.watch(alive)
	go w.show(alive)
	go w.present(ctx, types, duration(found.PresentMS))
	w.claim(ctx, alive, types)
	close(w.draining)
	if w.refusal() == nil {
		w.options.Log.Printf("holdfast: stopping: no new claims, and running steps may end within %v", w.options.Grace)
	}
	w.drain(alive)
	return w.refusal()
}

// stop ends the worker because the server refuses it.
func (w *Worker) stop(err error) {
	w.mutex.Lock()
	if w.refused == nil {
		w.refused = err
	}
	w.mutex.Unlock()
	w.cancel()
}

func (w *Worker) refusal() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.refused
}

// types returns the types to execute: those with a handler that begin with one of the prefixes.
func (w *Worker) types() (types []string) {
	for typ := range w.handlers {
		wanted := len(w.options.Prefixes) == 0
		for _, prefix := range w.options.Prefixes {
			wanted = wanted || strings.HasPrefix(typ, prefix)
		}
		if wanted {
			types = append(types, typ)
		}
	}
	sort.Strings(types)
	return types
}

func (w *Worker) register(ctx context.Context, types []string) (found registered, err error) {
	o := w.options
	body := registration{o.Name, "go", "holdfast-go", version, o.Runtime, types, o.Slots}
	err = w.connection.ask(ctx, "/workers/register", body, &found, patience)
	if refused := forbids(err); refused != nil {
		return found, refused
	}
	if err != nil {
		err = fmt.Errorf("holdfast: cannot register at %s: %w", o.URL, err)
	}
	return found, err
}

// present registers again and again, so that people see the worker.
func (w *Worker) present(ctx context.Context, types []string, every time.Duration) {
	for sleep(ctx, every) {
		_, _ = w.register(ctx, types)
	}
}

// claim keeps one claim open while a slot is free.
func (w *Worker) claim(ctx, alive context.Context, types []string) {
	for pause := retryMin; ctx.Err() == nil; {
		free, alone := w.free()
		if free == 0 {
			select {
			case <-w.changed:
			case <-ctx.Done():
			}
			continue
		}
		drain, after, err := w.claimOnce(ctx, alive, types, free, alone)
		switch {
		case err == nil && !drain:
			pause = retryMin
			continue
		case forbids(err) != nil:
			w.stop(forbids(err))
		case err != nil && !repeatable(err):
			w.options.Log.Printf("holdfast: claim: %v", err)
		}
		if after == 0 {
			after = jittered(pause)
		}
		sleep(ctx, after)
		pause = longer(pause)
	}
}

// claimOnce sends one claim and begins to execute the runs that it brings. It also returns whether the server stops, and
// how long it asks to wait.
func (w *Worker) claimOnce(ctx, alive context.Context, types []string, free, alone int) (bool, time.Duration, error) {
	body := claim{w.options.Name, w.options.Runtime, types, free, ms(w.options.Lease), ms(w.wait), []int{noLimit, noLimit, alone}}
	open, abort := context.WithCancel(ctx)
	defer abort()
	w.count(&w.claims.begun, abort)
	defer w.count(&w.claims.ended, abort)
	var found claimed
	sent := time.Now()
	after, err := w.connection.once(open, "/leases/claim", body, &found, w.wait+patience)
	if err == nil {
		w.take(alive, found.Leases, sent.Add(duration(found.WaitedMS)), time.Now())
	}
	if err != nil && open.Err() != nil { // it was given up
		return false, 0, nil
	}
	return found.Drain, after, err
}

func (w *Worker) count(number *int, abort func()) {
	w.mutex.Lock()
	*number++
	w.abort = abort
	w.mutex.Unlock()
}

// free returns the number of free slots, and how many runs that crashed three times may be taken: one at a time, so
// that a run that kills its process cannot bring another one to its last crash.
func (w *Worker) free() (slots, alone int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	alone = 1
	for _, one := range w.held {
		if one.crashes.Load() >= 3 {
			alone = 0
		}
	}
	if slots = w.options.Slots - len(w.held); slots > w.batches.limits.ClaimSlots {
		slots = w.batches.limits.ClaimSlots
	}
	return slots, alone
}

// take begins to execute leases. Their claim in the store was between asked and answered. An older execution of the same
// run has lost it.
func (w *Worker) take(alive context.Context, leases []lease, asked, answered time.Time) {
	for _, one := range leases {
		r := newExecution(alive, w, one, asked, answered)
		w.mutex.Lock()
		older := w.held[one.Run]
		stale := older != nil && older.lease.Fence >= one.Fence
		if !stale {
			w.held[one.Run] = r
		}
		w.mutex.Unlock()
		if stale {
			r.cancel()
			continue
		}
		if older != nil {
			older.lost.Store(true)
			older.cancel()
		}
		w.running.Add(1)
		go func() {
			defer w.running.Done()
			r.execute(w.handlers[r.lease.Type])
			w.forget(r)
		}()
	}
}

func (w *Worker) forget(r *execution) {
	r.cancel()
	w.mutex.Lock()
	if w.held[r.lease.Run] == r {
		delete(w.held, r.lease.Run)
	}
	w.mutex.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// drain waits until all runs are given back, and interrupts their steps when the grace period is over.
func (w *Worker) drain(ctx context.Context) {
	if w.refusal() != nil {
		w.interrupt(true)
		return
	}
	ended := make(chan struct{})
	go func() { w.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(w.options.Grace):
		w.interrupt(false)
		select {
		case <-ended:
		case <-time.After(time.Second):
			w.options.Log.Printf("holdfast: stopped with %d runs whose steps did not end in time", len(w.all()))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, retryMax)
	defer cancel()
	for n := 0; n < 2; n++ { // the last claim may have brought runs after it was given up
		lost, _ := w.renew(ctx)
		w.release(ctx, lost)
	}
	_ = w.connection.ask(ctx, "/workers/leave", map[string]string{"worker": w.options.Name}, nil, retryMax)
}

func (w *Worker) interrupt(lost bool) {
	for _, one := range w.all() {
		if lost {
			one.lost.Store(true)
		}
		one.cancel()
	}
}

func (w *Worker) all() []*execution {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var found []*execution
	for _, one := range w.held {
		found = append(found, one)
	}
	return found
}

// set gives an option its first default that is not empty.
func set[T comparable](option *T, defaults ...T) {
	var empty T
	for _, one := range defaults {
		if *option == empty {
			*option = one
		}
	}
}
