package holdfast

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"
)

const gatherBytes = 4 << 20 // results and effects that one checkpoint takes along, at most

// Step runs a function and records its value before it returns it. A later execution of the run gets the recorded value
// and does not call the function. A function that fails is tried again; the last failure is a [*Failure].
//
// The context of the function ends when the run is cancelled or lost, and when the step's timeout is over.
func Step[T any](ctx *Context, name string, run func(context.Context) (T, error), opts ...Option) (T, error) {
	o, r := chosen(opts), ctx.execution
	key := r.enter(name, o.key)
	defer r.leave()
	failed := r.perform([]*task{newTask(key, run)}, o, 1)
	return outcome[T](r, key, failed)
}

// Map runs a step for each item, at most limit at once, each recorded on its own by its place, or by its [ItemKey]. The
// first item that fails ends it: the other items are interrupted.
func Map[A, T any](ctx *Context, name string, items []A, limit int, run func(context.Context, A) (T, error), opts ...Option) ([]T, error) {
	o, r := chosen(opts), ctx.execution
	base := r.enter(name, o.key)
	defer r.leave()
	tasks := make([]*task, len(items))
	for n, one := range items {
		one := one
		name := strconv.Itoa(n)
		if o.itemKey != nil {
			name = o.itemKey(one)
		}
		key := base + "[" + name + "]"
		r.use(key)
		tasks[n] = newTask(key, func(ctx context.Context) (T, error) { return run(ctx, one) })
	}
	if limit < 1 {
		limit = 1
	}
	failed := r.perform(tasks, o, limit)
	found := make([]T, len(items))
	for n, one := range tasks {
		var err error
		if found[n], err = outcome[T](r, one.key, failed); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// outcome returns the recorded value of a step.
func outcome[T any](r *execution, key string, failed *Failure) (found T, err error) {
	if failed != nil {
		return found, failed
	}
	return found, unfit(decode(r.record[key].Output, &found), key)
}

// encoded returns a value of the user as JSON, or a failure.
func encoded(v any, what string) (value, error) {
	text, err := encode(v)
	if err != nil {
		return nil, &Failure{Kind: "encoding", Message: fmt.Sprintf("%s is no JSON: %v", what, err)}
	}
	return text, nil
}

// task is a step that may have to be run.
type task struct {
	key   string
	call  func(context.Context) (value, error)
	tries int
	due   time.Duration // lease time of the next try
	ready *step         // the failed try before it, if it is not recorded yet
	rows  effects       // what that try wrote
}

func newTask[T any](key string, run func(context.Context) (T, error)) *task {
	return &task{key: key, call: func(ctx context.Context) (value, error) {
		found, err := run(ctx)
		if err != nil {
			return nil, err
		}
		return encoded(found, "the value of step "+strconv.Quote(key))
	}}
}

// try is one call of the function of a step.
type try struct {
	*task
	skipped  bool // the worker stops, or the run is over: the function was not called
	began    time.Duration
	output   value
	err      error
	timedOut bool
	info     *StepInfo
}

// perform runs the tasks that have no record, at most limit at once, and records their outcomes. It returns the first
// failure. The functions have goroutines of their own; all writes are made here.
func (r *execution) perform(tasks []*task, o options, limit int) *Failure {
	todo, failed := r.unrecorded(tasks)
	if failed != nil || len(todo) == 0 {
		return failed
	}
	ctx, cancel := context.WithCancel(r.ctx)
	results, running := make(chan *try, len(todo)), 0
	defer func() {
		for cancel(); running > 0; running-- {
			<-results
		}
	}()
	var later []*task // their next try is more than a second away
	interrupted := false
	for running+len(todo) > 0 && failed == nil {
		for ; running < limit && len(todo) > 0 && !interrupted; todo = todo[1:] {
			if todo[0].due-r.now() > inPlaceMax {
				later = append(later, todo[0])
			} else if !r.affords(o.costMax, running) {
				if running == 0 {
					r.end(item{Op: "release", Before: todo[0].key, CostMax: o.costMax})
					r.exit()
				}
				break
			} else {
				running++
				go r.try(ctx, todo[0], o.timeout, results)
			}
		}
		if running == 0 {
			break
		}
		done := item{Op: "checkpoint"}
		for _, one := range gathered(results) {
			running--
			if one.skipped || one.err != nil && ctx.Err() != nil {
				interrupted = true
			} else if one.err == nil {
				done.Steps = append(done.Steps, step{Key: one.key, Output: one.output, Attempts: one.tries, Cost: one.info.cost, StartedMS: since(one.began)})
				done.effects = done.effects.with(one.info.effects)
			} else if r.judge(one, o) {
				done.Steps, done.effects = append(done.Steps, *one.ready), done.effects.with(one.rows)
			} else {
				todo = append(todo, one.task)
			}
		}
		if len(done.Steps) > 0 {
			r.must(done)
			failed = r.failure(tasks)
		}
	}
	if failed == nil && (interrupted || len(later) > 0) {
		r.giveBack(append(later, todo...), interrupted)
	}
	return failed
}

// failure returns the recorded failure of the first of these tasks that has one: several may fail in one commit, and a
// later execution must get the same one.
func (r *execution) failure(tasks []*task) *Failure {
	for _, one := range tasks {
		if found := r.record[one.key]; found != nil && found.Status == "failed" {
			return found.failure()
		}
	}
	return nil
}

// unrecorded returns the tasks that have to be run, or a recorded failure.
func (r *execution) unrecorded(tasks []*task) (todo []*task, failed *Failure) {
	for _, one := range tasks {
		found := r.find(one.key, "task")
		if found != nil && (found.Status == "succeeded" || found.Status == "failed") {
			continue
		}
		if found != nil { // a try has failed
			one.tries = found.Attempts
			if found.DueMS != nil {
				one.due = duration(*found.DueMS)
			}
		}
		todo = append(todo, one)
	}
	return todo, r.failure(tasks)
}

// try waits for its time and calls the function of a step.
func (r *execution) try(ctx context.Context, t *task, timeout time.Duration, results chan<- *try) {
	one := &try{task: t, info: &StepInfo{Run: r.lease.Run, Key: t.key, IdempotencyKey: r.lease.Run + ":" + t.key}}
	defer func() { results <- one }()
	if one.skipped = !r.mayBegin(ctx, t.due); one.skipped {
		return
	}
	t.tries++
	one.began = r.now()
	one.info.Attempt = t.tries
	r.trying.Store(t.key, running{t.key, t.tries, ms(one.began)})
	defer r.trying.Delete(t.key)
	ctx = context.WithValue(ctx, infoKey{}, one.info)
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	one.err = &Failure{Kind: "usage", Message: "the function of a step ended its goroutine, or made a durable call"}
	defer func() {
		if raised := recover(); raised != nil {
			one.err = panicked{fmt.Sprint(raised), string(debug.Stack())}
		}
		one.timedOut = errors.Is(ctx.Err(), context.DeadlineExceeded)
	}()
	one.output, one.err = t.call(ctx)
}

// mayBegin waits until it is time for a try and the lease is certain. It returns false if no step may begin.
func (r *execution) mayBegin(ctx context.Context, due time.Duration) bool {
	select {
	case <-time.After(due - r.now()):
	case <-ctx.Done():
		return false
	case <-r.worker.draining:
		return false
	}
	r.worker.confirm(r)
	select {
	case <-r.worker.draining:
		return false
	default:
		return ctx.Err() == nil && !r.late()
	}
}

// affords says whether the budgets of the run may pay for one more try beside those that run.
func (r *execution) affords(costMax float64, running int) bool {
	needs := costMax * float64(running+1)
	if costMax > 0 && r.lease.Budget != nil && r.lease.Cost+needs > *r.lease.Budget {
		return false
	}
	return r.lease.Left == nil || *r.lease.Left > 0 && *r.lease.Left >= needs
}

// late says whether the run has used the time that it was given.
func (r *execution) late() bool {
	return r.lease.TimeoutMS != nil && ms(r.now()) > *r.lease.TimeoutMS
}

// giveBack ends this execution; another one goes on, at once or when the first of these tasks is due. It records failed
// tries that are not recorded yet.
func (r *execution) giveBack(tasks []*task, atOnce bool) {
	if atOnce && r.late() {
		r.fail("timeout", "the run took longer than its timeout")
	}
	i := item{Op: "release"}
	for n, one := range tasks {
		left := positive(one.due - r.now()) // others may have taken longer than its delay
		if !atOnce && (n == 0 || ms(left) < i.DelayMS) {
			i.Op, i.Refund, i.DelayMS = "retry", true, ms(left)
		}
		if one.ready != nil {
			one.ready.DelayMS = since(left)
			i.Op, i.Refund, i.Error = "retry", true, one.ready.Error
			i.Steps, i.effects = append(i.Steps, *one.ready), i.effects.with(one.rows)
		}
	}
	r.end(i)
	r.exit()
}

// size returns the bytes of the values that a try has brought.
func (t *try) size() int {
	n := len(t.output)
	for _, one := range t.info.effects.Logs {
		n += len(one)
	}
	for _, one := range t.info.effects.Events {
		n += len(one.Payload)
	}
	for _, one := range t.info.effects.Messages {
		n += len(one.Payload)
	}
	return n
}

// gathered waits for one result, and takes those that have come too.
func gathered(results <-chan *try) []*try {
	found := []*try{<-results}
	for size := found[0].size(); size < gatherBytes && len(found) < 100; {
		select {
		case one := <-results:
			found = append(found, one)
			size += one.size()
		default:
			return found
		}
	}
	return found
}

// judge looks at a failed try. It returns true if the step has failed for good. Else it sets the time of the next try; if
// that is soon, the failed one is recorded now.
func (r *execution) judge(t *try, o options) bool {
	most, kind, said := o.attempts, finalKind(t.err), "error"
	set(&most, r.lease.MaxAttempts)
	if t.timedOut {
		said = "timeout"
	}
	if kind == "" && t.tries >= most {
		if kind = "exhausted"; t.timedOut {
			kind = "timeout"
		}
	}
	status := "failed"
	if kind == "" {
		status, kind = "ready", said
	}
	f := failureOf(t.err, kind)
	f.Step, f.Attempt, f.MaxAttempts = t.key, t.tries, most
	t.ready = &step{Key: t.key, Status: status, Error: f, Attempts: t.tries, MaxAttempts: most, Cost: t.info.cost, StartedMS: since(t.began)}
	t.rows = effects{Logs: t.info.effects.Logs}
	if status == "failed" {
		return true
	}
	delay := o.delay(t.err, t.tries)
	t.due = r.now() + delay
	if delay <= inPlaceMax {
		t.ready.DelayMS = since(delay)
		r.must(item{Op: "retry", Steps: []step{*t.ready}, effects: t.rows, Error: f, DelayMS: ms(delay), InPlace: true, Refund: true})
		t.ready = nil
	}
	return false
}

// finalKind returns the kind of an error that no retry helps against, else nothing.
func finalKind(err error) string {
	var recorded *Failure
	var mark fatal
	switch {
	case errors.As(err, &recorded):
		return recorded.Kind
	case errors.As(err, &mark):
		return "fatal"
	}
	return ""
}
