package holdfast

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a server that gives out leases and keeps what comes back. A test changes its answers by the functions.
type fake struct {
	*httptest.Server
	batch     func(number int, items []item) []answer // nil, or a nil answer: no answer is sent
	heartbeat func(number int, body heartbeat) news
	load      func(load) loaded
	claim     func(number int) bool                                       // false: the answer is lost
	proxy     func(out http.ResponseWriter, path string, number int) bool // true: it has answered in place of the server

	mutex   sync.Mutex
	leases  []lease
	items   []item
	raw     []string
	bodies  map[string]int
	arrived chan struct{}
}

func newFake(t *testing.T) *fake {
	f := &fake{bodies: map[string]int{}, arrived: make(chan struct{}, 1)}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

const runID = "01890a5d-ac96-774b-bcce-b302099a8057"

// give puts a run into the queue.
func (f *fake) give(one lease) {
	set(&one.Run, runID)
	set(&one.Type, "shop.order.v1")
	set(&one.Fence, 1)
	set(&one.Token, "t")
	set(&one.LeaseMS, 30_000)
	set(&one.MaxAttempts, 3)
	set(&one.Attempt, 1)
	f.mutex.Lock()
	f.leases = append(f.leases, one)
	f.mutex.Unlock()
}

func (f *fake) serve(out http.ResponseWriter, in *http.Request) {
	text, _ := io.ReadAll(in.Body)
	f.mutex.Lock()
	f.bodies[in.URL.Path]++
	number := f.bodies[in.URL.Path]
	f.mutex.Unlock()
	if f.proxy != nil && f.proxy(out, in.URL.Path, number) {
		return
	}
	switch in.URL.Path {
	case "/workers/register":
		f.answer(out, registered{20, 50, limits{1 << 20, 1000, 1000, 10_000}})
	case "/workers/leave":
	case "/leases/claim":
		f.claims(out, number)
	case "/leases/load":
		var body load
		_ = json.Unmarshal(text, &body)
		f.answer(out, f.load(body))
	case "/leases/heartbeat":
		var body heartbeat
		_ = json.Unmarshal(text, &body)
		f.answer(out, f.beats(number, body))
	case "/leases/batch":
		f.batches(out, number, text)
	}
}

func (f *fake) claims(out http.ResponseWriter, number int) {
	f.mutex.Lock()
	found := f.leases
	f.leases = nil
	f.mutex.Unlock()
	if f.claim != nil && !f.claim(number) {
		panic(http.ErrAbortHandler)
	}
	if len(found) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	f.answer(out, claimed{Leases: found})
}

func (f *fake) beats(number int, body heartbeat) news {
	if f.heartbeat != nil {
		return f.heartbeat(number, body)
	}
	return holding(body)
}

// holding says that every lease is held.
func holding(body heartbeat) (found news) {
	for _, one := range body.Leases {
		found.Leases = append(found.Leases, leaseNews{one.Run, "held", true})
	}
	return found
}

func (f *fake) batches(out http.ResponseWriter, number int, text []byte) {
	var body struct{ Items []item }
	if err := json.Unmarshal(text, &body); err != nil {
		panic(err)
	}
	f.mutex.Lock()
	f.items = append(f.items, body.Items...)
	f.raw = append(f.raw, string(text))
	f.mutex.Unlock()
	found := applied(body.Items)
	if f.batch != nil {
		found = f.batch(number, body.Items)
	}
	if found == nil {
		panic(http.ErrAbortHandler) // the connection breaks
	}
	f.answer(out, answers{found})
	for _, one := range body.Items {
		if one.Op == "complete" || one.Op == "fail" || one.Op == "release" {
			f.arrived <- struct{}{}
		}
	}
}

// applied answers items as a server does that has nothing to add.
func applied(items []item) (found []answer) {
	status := map[string]string{"checkpoint": "leased", "complete": "succeeded", "fail": "failed", "park": "waiting"}
	for _, one := range items {
		now := status[one.Op]
		if one.InPlace {
			now = "leased"
		}
		found = append(found, answer{Run: one.Run, Seq: one.Seq, Answer: "applied", Status: now})
	}
	return found
}

func (f *fake) answer(out io.Writer, body any) {
	if err := json.NewEncoder(out).Encode(body); err != nil {
		panic(err)
	}
}

// said returns what the items did, as "op seq key key".
func (f *fake) said() (found []string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, one := range f.items {
		words := []string{one.Op, fmt.Sprint(one.Seq)}
		for _, step := range one.Steps {
			words = append(words, step.Key)
		}
		found = append(found, strings.Join(words, " "))
	}
	return found
}

// last returns the last item.
func (f *fake) last() item {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.items[len(f.items)-1]
}

// work executes a workflow on the server until one run has ended.
func work[P, R any](t *testing.T, f *fake, run func(*Context, P) (R, error), opts ...Option) {
	t.Helper()
	stop := begin(t, f, run, opts...)
	f.ended(t)
	stop()
}

func (f *fake) ended(t *testing.T) {
	t.Helper()
	select {
	case <-f.arrived:
	case <-time.After(20 * time.Second):
		t.Fatalf("the run has not ended: %v", f.said())
	}
}

// begin starts a worker and returns a function that stops it gracefully.
func begin[P, R any](t *testing.T, f *fake, run func(*Context, P) (R, error), opts ...Option) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := New(Options{URL: f.URL, Lease: 600 * time.Millisecond, Log: log.New(io.Discard, "", 0)})
	Handle(w, "shop.order.v1", run, opts...)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return stop
}
