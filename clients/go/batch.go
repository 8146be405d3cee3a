package holdfast

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// A batch is sent when the other goroutines have had their turn so often without a new item, or after so long.
const (
	yields    = 8
	yieldTime = 100 * time.Microsecond
)

// batches sends the items of all runs: one request at a time, and what gathers meanwhile goes with the next one.
type batches struct {
	connection *connection
	limits     limits
	refused    func(error) // called with a refusal that ends the worker
	mutex      sync.Mutex
	queue      []*outgoing
	wake       chan struct{}
}

// outgoing is an item on its way. Its bytes never change, so that a repetition is the same item.
type outgoing struct {
	run    string
	seq    int64
	body   []byte
	tries  int // answers that asked for it again
	answer chan answer
}

// send returns the answer to an item. If no answer comes, the same item is sent again until ctx ends. An item that
// cannot be written is refused here.
func (b *batches) send(ctx context.Context, i item) (answer, error) {
	body, err := encode(i)
	if err != nil {
		return answer{Problem: &Problem{Code: "bad-value", Status: 422, Detail: err.Error()}}, nil
	}
	out := &outgoing{run: i.Run, seq: i.Seq, body: body, answer: make(chan answer, 1)}
	b.add(out)
	select {
	case found := <-out.answer:
		return found, nil
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

func (b *batches) add(items ...*outgoing) {
	b.mutex.Lock()
	b.queue = append(b.queue, items...)
	b.mutex.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run sends batches until ctx ends.
func (b *batches) run(ctx context.Context) {
	for {
		select {
		case <-b.wake:
		case <-ctx.Done():
			return
		}
		for batch := b.gather(); len(batch) > 0 && ctx.Err() == nil; batch = b.gather() {
			b.post(ctx, batch)
		}
	}
}

// gather returns the next batch. Runs that were answered just now have their turn first: what they send at once goes
// with this batch, and not alone with one after it.
func (b *batches) gather() []*outgoing {
	began := time.Now()
	for before, idle := 0, 0; idle < yields && time.Since(began) < yieldTime; idle++ {
		runtime.Gosched()
		if now := b.waiting(); now > before {
			before, idle = now, 0
		}
	}
	return b.take()
}

func (b *batches) waiting() int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return len(b.queue)
}

// take returns the items of the next batch: as many as the server accepts, at least one.
func (b *batches) take() []*outgoing {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	size, n := 1024, 0
	for ; n < len(b.queue) && n < b.limits.BatchItems; n++ {
		if size += len(b.queue[n].body) + 1; n > 0 && size > b.limits.BatchBytes {
			break
		}
	}
	batch := b.queue[:n:n]
	b.queue = b.queue[n:]
	return batch
}

// post sends a batch until it is answered. A batch that is refused as a whole is sent in halves, so that one bad
// item stays alone.
func (b *batches) post(ctx context.Context, batch []*outgoing) {
	var body bytes.Buffer
	body.WriteString(`{"items":[`)
	for n, out := range batch {
		if n > 0 {
			body.WriteByte(',')
		}
		body.Write(out.body)
	}
	body.WriteString(`]}`)
	var found answers
	err := b.connection.ask(ctx, "/leases/batch", value(body.Bytes()), &found, patience)
	var problem *Problem
	switch {
	case err == nil && !answered(batch, found.Items):
		for _, out := range batch {
			b.again(out, nil)
		}
	case err == nil:
		b.deliver(batch, found.Items)
	case forbids(err) != nil:
		b.refused(forbids(err))
	case errors.As(err, &problem) && len(batch) > 1:
		b.post(ctx, batch[:len(batch)/2])
		b.post(ctx, batch[len(batch)/2:])
	case errors.As(err, &problem):
		batch[0].answer <- answer{Problem: problem}
	}
}

// answered says whether these are the answers to this batch, in its order.
func answered(batch []*outgoing, found []answer) bool {
	if len(found) != len(batch) {
		return false
	}
	for n, out := range batch {
		if found[n].Run != out.run || found[n].Seq != out.seq {
			return false
		}
	}
	return true
}

// deliver gives each run its answer. An item whose row is busy is sent again.
func (b *batches) deliver(batch []*outgoing, found []answer) {
	for n, out := range batch {
		problem := found[n].Problem
		if problem == nil || !problem.Retryable {
			out.answer <- found[n]
			continue
		}
		b.again(out, problem)
	}
}

// again sends an item again after the pause that its problem asks for, else after one that grows.
func (b *batches) again(out *outgoing, problem *Problem) {
	pause := time.Duration(0)
	if problem != nil {
		pause = asked(problem.RetryAfterMS)
	}
	if pause == 0 {
		pause = jittered(grown(out.tries))
	}
	out.tries++
	time.AfterFunc(pause, func() { b.add(out) })
}
