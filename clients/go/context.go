package holdfast

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Context is what a workflow function calls. All its durable calls are made by the goroutine of that function, one after
// the other. It is a context.Context, too: it ends when the run is cancelled or lost.
type Context struct {
	context.Context
	execution *execution
}

// RunID returns the id of the run.
func (c *Context) RunID() string { return c.execution.lease.Run }

// Type returns the type of the run.
func (c *Context) Type() string { return c.execution.lease.Type }

// Tenant returns the tenant of the run.
func (c *Context) Tenant() string { return c.execution.lease.Tenant }

// Parent returns the id of the run that started this one; empty: none.
func (c *Context) Parent() string { return c.execution.lease.Parent }

// Labels returns the labels of the run.
func (c *Context) Labels() map[string]string { return c.execution.lease.Labels }

// ContinueAs ends this run as succeeded and starts the next one of the same workflow: `return result, ctx.ContinueAs(p)`.
func (c *Context) ContinueAs(params any) error {
	text, err := encoded(params, "the params of ContinueAs")
	if err != nil {
		return err
	}
	return continued{text}
}

// Now returns the time. It is recorded: a later execution gets the same time. It never goes back within a run.
func (c *Context) Now() time.Time {
	r := c.execution
	key := r.enter("now", "")
	defer r.leave()
	if found := r.find(key, "now"); found != nil {
		return time.UnixMicro(found.microseconds())
	}
	at := r.lease.ClaimedAt + r.now().Microseconds()
	if at < r.latest { // the clock of the store was set back
		at = r.latest
	}
	r.note(step{Key: key, Kind: "now", Output: value(strconv.FormatInt(at, 10))})
	return time.UnixMicro(at)
}

// Emit sends an event with the run's next commit: once, however often the run is executed.
func (c *Context) Emit(topic string, payload any, opts ...Option) error {
	if problem := unkept("a topic", topic, topicMax); problem != nil {
		return problem
	}
	text, err := encoded(payload, "the payload of event "+strconv.Quote(topic))
	if err == nil {
		c.effect("emit:"+topic, opts, func(key string, with *effects) {
			with.Events = append(with.Events, event{key, topic, text})
		})
	}
	return err
}

// Send sends a message to a sink with the run's next commit: once, however often the run is executed. Messages of one
// order are delivered one after the other; an empty order is none.
func (c *Context) Send(sink string, payload any, order string, opts ...Option) error {
	text, err := encoded(payload, "the message to "+strconv.Quote(sink))
	if err == nil {
		c.effect("send:"+sink, opts, func(key string, with *effects) {
			with.Messages = append(with.Messages, message{sink, text, order, key, 1})
		})
	}
	return err
}

// effect adds to what the next commit writes, unless an earlier execution has done it.
func (c *Context) effect(name string, opts []Option, add func(key string, with *effects)) {
	r := c.execution
	key := r.enter(name, chosen(opts).key)
	defer r.leave()
	if r.find(key, "emit") == nil {
		r.note(step{Key: key, Kind: "emit"})
		add(key, &r.pending.effects)
	}
}

// Random returns a number in [0, 1): the same in every execution.
func (c *Context) Random() float64 { return c.execution.drawn().number() }

// UUID returns a random UUID: the same in every execution.
func (c *Context) UUID() string { return c.execution.drawn().uuid() }

func (r *execution) drawn() *generator {
	r.begin()
	defer r.leave()
	if r.chance == nil {
		r.chance = newGenerator(r.lease.Run)
	}
	return r.chance
}

// Log adds a row to the trail with the run's next commit; a later execution does not repeat it.
func (c *Context) Log(message string, fields map[string]any) {
	r := c.execution
	r.begin()
	defer r.leave()
	if r.logs++; r.logs <= r.lease.Logs {
		return
	}
	if r.pending.log(message, fields, "log_no", r.logs) {
		r.lease.Logs = r.logs
	}
}

// log adds a row for the trail. It returns false for fields that are no JSON.
func (e *effects) log(message string, fields map[string]any, name string, where any) bool {
	row := map[string]any{"level": "info"}
	for name, one := range fields {
		row[name] = one
	}
	row["message"], row[name] = clipped(message, messageMax), where
	text, err := encode(row)
	if err == nil {
		e.Logs = append(e.Logs, text)
	}
	return err == nil
}

// Progress shows people how far the run is; a total of 0 is none. It is written with the next commit.
func (c *Context) Progress(done, total float64, note string) {
	c.execution.begin()
	defer c.execution.leave()
	said := map[string]any{"done": done}
	if total != 0 {
		said["total"] = total
	}
	if note != "" {
		said["note"] = note
	}
	c.execution.pending.Progress, _ = encode(said)
}

// note records a step that is answered at once, with the next commit.
func (r *execution) note(one step) {
	r.pending.Steps = append(r.pending.Steps, one)
	r.wrote(one)
}

// Sleep parks the run for so long.
func (c *Context) Sleep(d time.Duration, opts ...Option) {
	c.sleep(step{DelayMS: since(positive(d))}, opts)
}

// SleepUntil parks the run until this time, by the clock of the server.
func (c *Context) SleepUntil(t time.Time, opts ...Option) {
	c.sleep(step{Until: t.Format(time.RFC3339Nano)}, opts)
}

func (c *Context) sleep(one step, opts []Option) {
	one.Key, one.Kind = c.execution.enter("sleep", chosen(opts).key), "sleep"
	defer c.execution.leave()
	c.execution.await(one)
}

// AwaitEvent waits for an event of this topic and returns its payload. With [Timeout], an event that does not come in time
// is an error that is [ErrTimeout]. See [SinceNow].
func AwaitEvent[T any](ctx *Context, topic string, opts ...Option) (T, error) {
	o, r := chosen(opts), ctx.execution
	var event struct{ Payload T }
	if problem := unkept("a topic", topic, topicMax); problem != nil {
		return event.Payload, problem
	}
	one := step{Key: r.enter("event:"+topic, o.key), Kind: "event", Topic: topic, SinceNow: o.sinceNow, DelayMS: o.limit()}
	defer r.leave()
	found := r.await(one)
	if found.Status == "failed" {
		return event.Payload, found.failure()
	}
	err := decode(found.Output, &event)
	return event.Payload, unfit(err, one.Key)
}

// Decision is the outcome of an approval.
type Decision struct {
	Approved bool      `json:"approved"`
	By       string    `json:"by"`
	Comment  string    `json:"comment"`
	TimedOut bool      `json:"timed_out"`
	At       time.Time `json:"-"`
}

// ApproveOnTimeout makes an approval that nobody decides in time approved. Without it, it is rejected.
func ApproveOnTimeout() Option { return func(o *options) { o.approve = true } }

// Approval waits until a person decides. The person sees the question and the data. A rejection is no error.
func (c *Context) Approval(name, question string, data any, opts ...Option) (Decision, error) {
	var found Decision
	o, r := chosen(opts), c.execution
	ask, err := encoded(map[string]any{"ask": question, "data": data}, "the data of approval "+strconv.Quote(name))
	if err != nil {
		return found, err
	}
	one := step{Key: r.enter(name, o.key), Kind: "approval", Ask: ask, DelayMS: o.limit()}
	defer r.leave()
	if o.approve {
		one.OnTimeout = "approve"
	}
	decided := struct {
		*Decision
		Microseconds int64 `json:"at"`
	}{Decision: &found}
	err = decode(r.await(one).Output, &decided)
	found.At = time.UnixMicro(decided.Microseconds)
	return found, unfit(err, one.Key)
}

// Child has the options of a child run, for [With].
type Child struct {
	Priority       *int
	Delay          time.Duration
	RunAt          time.Time // in place of Delay
	Timeout        time.Duration
	MaxAttempts    int
	TTL            time.Duration // how long the ended run is kept
	Budget         float64
	CoversChildren bool // the budget is that of its children too
	LimitKey       string
	Labels         map[string]string
}

// With gives options to a child run.
func With(child Child) Option { return func(o *options) { o.child = child } }

// Call starts a child run, waits for its end and returns its result. A child that does not succeed is a [*Failure] of
// kind child_failed.
func Call[R any](ctx *Context, typ string, params any, opts ...Option) (R, error) {
	var ended struct{ Result R }
	r := ctx.execution
	one, err := r.childStep(typ, params, chosen(opts))
	if err != nil {
		return ended.Result, err
	}
	defer r.leave()
	one.Status = "waiting"
	found := r.await(one)
	if found.Status == "failed" {
		return ended.Result, found.failure()
	}
	return ended.Result, unfit(decode(found.Output, &ended), one.Key)
}

// Start starts a child run and returns its id, without waiting for its end.
func (c *Context) Start(typ string, params any, opts ...Option) (string, error) {
	r := c.execution
	one, err := r.childStep(typ, params, chosen(opts))
	if err != nil {
		return "", err
	}
	defer r.leave()
	var begun struct{ Run string }
	if r.find(one.Key, "child") == nil {
		if id := r.must(item{Op: "checkpoint", Steps: []step{one}}).Children[one.Key]; id != "" {
			r.record[one.Key].Output = value(`{"run":` + strconv.Quote(id) + `}`)
		}
	}
	return begun.Run, unfit(decode(r.record[one.Key].Output, &begun), one.Key)
}

func (r *execution) childStep(typ string, params any, o options) (step, error) {
	text, err := encoded(params, "the params of child "+strconv.Quote(typ))
	if err != nil {
		return step{}, err
	}
	c := o.child
	begin := &child{
		Type: typ, Params: text, Priority: c.Priority, DelayMS: ms(c.Delay), TimeoutMS: ms(c.Timeout), TTLMS: ms(c.TTL),
		MaxAttempts: c.MaxAttempts, Budget: c.Budget, CoversChildren: c.CoversChildren, LimitKey: c.LimitKey, Labels: c.Labels,
	}
	if !c.RunAt.IsZero() {
		begin.RunAt = c.RunAt.Format(time.RFC3339Nano)
	}
	return step{Key: r.enter(unversioned(typ), o.key), Kind: "child", Child: begin}, nil
}

// await parks the run until the wait is settled. It returns the outcome; if it has not come yet, it does not return.
func (r *execution) await(one step) *recorded {
	for {
		found := r.find(one.Key, one.Kind)
		if found != nil && (found.Status == "succeeded" || found.Status == "failed") {
			return found
		}
		known := r.known
		i := item{Op: "park", Known: &known}
		if found == nil || found.Status != "waiting" {
			one.Status, one.StartedMS = "waiting", since(r.now())
			i.Steps = []step{one}
		}
		r.must(i)
	}
}

// failure returns the error of a step that has failed.
func (s *recorded) failure() *Failure {
	f := Failure{Kind: "exhausted"}
	if s.Error != nil {
		f = *s.Error
	}
	if s.Kind == "child" {
		f.Kind, f.Message = "child_failed", fmt.Sprintf("the child did not succeed: %s: %s", f.Kind, f.Message)
	}
	f.Step = s.Key
	return &f
}

func (o options) limit() *float64 {
	if o.timeout <= 0 {
		return nil
	}
	return since(o.timeout)
}

func unfit(err error, key string) error {
	if err == nil {
		return nil
	}
	return &Failure{Kind: "encoding", Step: key, Message: "the recorded value does not fit: " + err.Error()}
}

var versionEnd = regexp.MustCompile(`\.v[0-9]+$`)

// unversioned returns a type without its version: shop.ship for shop.ship.v2.
func unversioned(typ string) string { return versionEnd.ReplaceAllString(typ, "") }

func random() string {
	var bits [4]byte
	_, _ = rand.Read(bits[:])
	return hex.EncodeToString(bits[:])
}
