package holdfast

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Runs that write at the same pace share their requests: those that were answered do not take turns with those that
// came meanwhile.
func TestRunsThatWriteAtOnePaceShareRequests(t *testing.T) {
	const runs, writes = 10, 20
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		requests.Add(1)
		text, _ := io.ReadAll(in.Body)
		var body struct{ Items []item }
		_ = json.Unmarshal(text, &body)
		found := answers{}
		for _, one := range body.Items {
			found.Items = append(found.Items, answer{Run: one.Run, Seq: one.Seq, Status: "leased"})
		}
		time.Sleep(5 * time.Millisecond)
		_ = json.NewEncoder(out).Encode(found)
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	connection := connect(Options{URL: server.URL, HTTP: server.Client(), Log: log.New(io.Discard, "", 0)})
	b := &batches{connection: connection, limits: limits{BatchBytes: 1 << 20, BatchItems: 1000}, wake: make(chan struct{}, 1)}
	go b.run(ctx)
	var all sync.WaitGroup
	for n := 0; n < runs; n++ {
		all.Add(1)
		go func(run string) {
			defer all.Done()
			for seq := int64(1); seq <= writes; seq++ {
				if _, err := b.send(ctx, item{held: held{Run: run}, Op: "checkpoint", Seq: seq}); err != nil {
					t.Error(err)
				}
			}
		}(strconv.Itoa(n))
	}
	all.Wait()
	if found := requests.Load(); found > writes*3/2 {
		t.Fatalf("%d requests for %d writes of each of %d runs", found, writes, runs)
	}
}
