package holdfast

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	inPlaceMax = time.Second // up to this delay a retry waits here; a longer one leaves the slot to other runs
	stepsMax   = 10_000      // steps of one run
	labelMax   = 640         // characters of the name of a step
	keyMax     = 700         // of its key
	topicMax   = 512
	sealed     = time.Minute // until a server with the right key may read the run
)

// execution is one leased run. The workflow function has a goroutine of its own, which ends (runtime.Goexit) where the
// run parks or is lost. Everything here is used by one goroutine at a time, except what is atomic.
type execution struct {
	worker  *Worker
	lease   lease
	alive   context.Context // ends with the worker
	ctx     context.Context // ends with the lease: steps get it
	cancel  context.CancelFunc
	origin  time.Time    // zero of lease time: the answer of the claim, so that it is never ahead of the store
	begun   time.Time    // when the code began
	until   atomic.Int64 // the lease may be over then, in nanoseconds of lease time
	lost    atomic.Bool  // cancelled, or taken by another worker: write nothing more
	told    atomic.Bool  // the server knows when the code began
	crashes atomic.Int64
	busy    atomic.Bool // a durable call is under way
	misused atomic.Bool // a durable call was made inside another one
	trying  sync.Map    // by key, the steps whose functions run

	record  map[string]*recorded
	known   int64 // highest seq that was seen
	latest  int64 // the latest time that Now has recorded, in microseconds since 1970
	seq     int64 // of the last item that was answered
	attempt int
	over    bool // this worker holds the run no more
	names   map[string]int
	asked   map[string]bool
	logs    int // calls of Log in this execution
	chance  *generator
	pending item // rows that the next commit takes along
}

func newExecution(alive context.Context, w *Worker, one lease, asked, answered time.Time) *execution {
	r := &execution{worker: w, lease: one, alive: alive, origin: answered, begun: time.Now(), attempt: one.Attempt}
	r.ctx, r.cancel = context.WithCancel(alive)
	r.until.Store(int64(asked.Sub(answered) + duration(one.LeaseMS)))
	r.crashes.Store(int64(one.Crashes))
	r.record = map[string]*recorded{}
	r.learn(one.Steps)
	return r
}

// now returns the lease time.
func (r *execution) now() time.Duration { return time.Since(r.origin) }

func (r *execution) overdue() bool { return int64(r.now()) >= r.until.Load() }

func (r *execution) beat(at time.Time) beat {
	one := beat{held: r.lease.held, Survived: r.survived(at)}
	if !r.told.Load() {
		one.StartedMS = since(r.begun.Sub(r.origin))
	}
	return one
}

// survived says whether the run has executed for a whole lease time: then its crashes are forgiven.
func (r *execution) survived(at time.Time) bool {
	return r.crashes.Load() > 0 && at.Sub(r.begun) > duration(r.lease.LeaseMS)
}

// hear takes what a heartbeat says. A state that is not known here changes nothing: the next item is refused then.
func (r *execution) hear(state string, renewed bool, sent time.Time) {
	switch {
	case state == "cancelled" || state == "lost":
		r.lost.Store(true)
		r.cancel()
	case state == "held" && renewed:
		r.until.Store(int64(sent.Sub(r.origin) + r.worker.options.Lease))
		r.told.Store(true)
		if r.survived(sent) {
			r.crashes.Store(0)
		}
	}
}

// execute runs the workflow until the run has ended, parked or is lost.
func (r *execution) execute(h handler) {
	if r.lease.Unread && !r.load(nil) {
		return
	}
	if h.call == nil || r.lease.Kind == "plan" {
		why := fmt.Sprintf("this worker executes no %s of type %s", r.lease.Kind, r.lease.Type)
		r.end(item{Op: "retry", Refund: true, DelayMS: ms(sealed), Error: &Failure{Kind: "no_handler", Message: why}})
	}
	for !r.over && r.once(h) {
	}
}

// once executes the function from its beginning. It returns true if the function is to be executed again.
func (r *execution) once(h handler) bool {
	r.names, r.asked, r.logs, r.chance = map[string]int{}, map[string]bool{}, 0, nil
	result, err := r.call(h)
	var as continued
	switch {
	case r.over || r.lost.Load():
		return false
	case r.misused.Load():
		r.fail("usage", "a durable call was made inside a step or in another goroutine: make it in the workflow function")
	case err == nil:
		r.end(item{Op: "complete", Result: result})
	case errors.As(err, &as):
		r.end(item{Op: "complete", ContinueAs: &next{as.params}})
	case r.ctx.Err() != nil:
		r.end(item{Op: "release"})
	default:
		return r.failed(h, err)
	}
	return false
}

// call runs the function in a goroutine of its own, so that a call inside it can end it.
func (r *execution) call(h handler) (result value, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if raised := recover(); raised != nil {
				err = panicked{fmt.Sprint(raised), string(debug.Stack())}
			} else if !returned {
				err = errors.New("the workflow function ended its goroutine")
			}
		}()
		result, err = h.call(&Context{r.ctx, r})
		returned = true
	}()
	<-done
	return result, err
}

// failed retries the run after an error of its function, or fails it. It returns true if it is executed again here.
func (r *execution) failed(h handler, err error) bool {
	kind, n := finalKind(err), r.attempt-int(r.crashes.Load())
	if kind == "" && n >= r.lease.MaxAttempts {
		kind = "exhausted"
	}
	if kind != "" {
		recorded := failureOf(err, kind)
		var step *Failure
		if errors.As(err, &step) {
			recorded.Step, recorded.Attempt, recorded.MaxAttempts = step.Step, step.Attempt, step.MaxAttempts
		}
		r.end(item{Op: "fail", Error: recorded})
		return false
	}
	delay := h.retry.delay(err, n)
	here := delay <= inPlaceMax
	_, held := r.commit(item{Op: "retry", Error: failureOf(err, "error"), DelayMS: ms(delay), InPlace: here})
	if held {
		r.attempt++
		held = r.pause(delay)
	}
	return held
}

// pause waits for the next try. It returns false if the run was given back or lost meanwhile.
func (r *execution) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.worker.draining:
	case <-r.ctx.Done():
	}
	r.end(item{Op: "release"})
	return false
}

// commit sends what the run has done. It returns false if the run is held no more: then nothing more may be done.
func (r *execution) commit(i item) (answer, bool) {
	if r.over || r.lost.Load() {
		r.over = true
		return answer{}, false
	}
	i.Steps, i.Progress = append(r.pending.Steps, i.Steps...), r.pending.Progress
	i.effects = r.pending.effects.with(i.effects)
	found, problem := r.send(i)
	if problem != nil {
		r.refused(problem, true)
		return found, false
	}
	if found.Run == "" {
		return found, false
	}
	r.seq++
	r.pending = item{}
	r.told.Store(true)
	if r.lease.Left != nil {
		r.lease.Left = found.Left
	}
	for _, one := range i.Steps {
		r.lease.Cost += one.Cost
		if r.wrote(one); one.Status == "" || one.Status == "succeeded" || one.Status == "failed" {
			r.attempt = 1 // the run has made progress
			r.crashes.Store(0)
		}
	}
	r.learn(found.Settled)
	if found.Known > r.known {
		r.known = found.Known
	}
	r.over = found.Answer != "applied" || found.Status != "leased"
	if !r.over && len(found.Kept) > 0 { // another outcome was recorded before, and counts
		return found, r.load(nil)
	}
	if !r.over && found.More {
		return found, r.load(i.Known)
	}
	return found, !r.over
}

func (r *execution) send(i item) (answer, *Problem) {
	i.held, i.Seq, i.LeaseMS, i.Shares = r.lease.held, r.seq+1, ms(r.worker.options.Lease), r.lease.Left != nil
	if !r.told.Load() {
		i.StartedMS = since(r.begun.Sub(r.origin))
	}
	found, err := r.worker.batches.send(r.alive, i)
	if err != nil { // the worker has ended
		r.over = true
		return answer{}, nil
	}
	return found, found.Problem
}

// refused ends a run after a refusal: of an item, which was not applied, so that the next one has its seq; or of a load.
func (r *execution) refused(problem *Problem, written bool) {
	r.over = true
	r.pending = item{}
	last := item{Op: "fail", Error: &Failure{Kind: "usage", Message: clipped(problem.Detail, messageMax)}}
	switch problem.Code {
	case "lease-lost", "conflict":
		r.lost.Store(true)
		r.cancel()
		if problem.Code == "conflict" { // a mistake of this package: the run comes back after its lease
			r.worker.options.Log.Printf("holdfast: run %s: %v", r.lease.Run, problem)
		}
		return
	case "unreadable":
		if written {
			r.seq++ // the refused item keeps its number
		}
		last = item{Op: "retry", Refund: true, DelayMS: ms(sealed), Error: &Failure{Kind: "sealed", Message: last.Error.Message}}
	case "too-large":
		last.Error.Kind = "too_large"
	}
	if problem.Status == 413 {
		last.Error.Kind = "too_large"
	}
	if _, again := r.send(last); again != nil && again.Code != "lease-lost" {
		r.worker.options.Log.Printf("holdfast: run %s: %v", r.lease.Run, again)
	}
}

// must commits from the workflow function. It returns only if the run is still held.
func (r *execution) must(i item) answer {
	found, held := r.commit(i)
	if !held {
		r.exit()
	}
	return found
}

// end sends the last item of this lease.
func (r *execution) end(i item) {
	r.commit(i)
	r.over = true
}

func (r *execution) fail(kind, message string) {
	r.end(item{Op: "fail", Error: &Failure{Kind: kind, Message: message}})
}

// exit ends the goroutine of the workflow function. Its deferred functions run.
func (r *execution) exit() {
	r.over = true
	runtime.Goexit()
}

// begin begins a durable call. Two at once are a mistake of the user.
func (r *execution) begin() {
	if !r.busy.CompareAndSwap(false, true) {
		r.misused.Store(true)
		runtime.Goexit()
	}
	if r.over {
		r.exit()
	}
}

// enter begins a durable call and returns its key: the given one, or the name with the number of its use.
func (r *execution) enter(name, key string) string {
	r.begin()
	if key == "" {
		r.check("a name", name, labelMax)
		key = name
		if r.names[name]++; r.names[name] > 1 {
			key = fmt.Sprintf("%s#%d", name, r.names[name])
		}
	}
	r.use(key)
	return key
}

func (r *execution) leave() { r.busy.Store(false) }

func (r *execution) use(key string) {
	r.check("a key", key, keyMax)
	if r.asked[key] {
		r.fail("usage", fmt.Sprintf("the key %q is used twice in this run: give each use its own key", key))
		r.exit()
	}
	r.asked[key] = true
}

func (r *execution) check(what, text string, most int) {
	if problem := unkept(what, text, most); problem != nil {
		r.end(item{Op: "fail", Error: problem})
		r.exit()
	}
}

// unkept returns a failure for text that would not come back from the record as it is.
func unkept(what, text string, most int) *Failure {
	n := utf8.RuneCountInString(text)
	if 0 < n && n <= most && utf8.ValidString(text) && !strings.Contains(text, "\x00") {
		return nil
	}
	return &Failure{Kind: "usage", Message: fmt.Sprintf("%s is valid UTF-8 of 1 to %d characters without NUL, this one has %d: %q", what, most, n, clipped(text, 40))}
}

func since(d time.Duration) *float64 {
	found := ms(d)
	return &found
}
