// Command broken is the conformance program with one mistake, to show that the kit finds it: broken MISTAKE. The mistake
// is made between the client and the network, so that the client itself stays right.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"

	"holdfast.internal/holdfast/conformance/script"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

var mistakes = map[string]transport{
	"no-fence":     noFence,
	"drops-result": dropsResult,
	"work-thread":  workThread,
}

func main() {
	if len(os.Args) != 2 || mistakes[os.Args[1]] == nil {
		log.Fatal("usage: broken no-fence | drops-result | work-thread")
	}
	options := script.Options()
	options.HTTP = &http.Client{Transport: mistakes[os.Args[1]]}
	script.Main(options)
}

var fence = regexp.MustCompile(`"fence":\d+,`)

// noFence writes without the fence of the lease.
func noFence(request *http.Request) (*http.Response, error) {
	if isBatch(request) {
		body := fence.ReplaceAll(bodyOf(request), nil)
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return http.DefaultTransport.RoundTrip(request)
}

// dropsResult takes an item whose answer was lost for written, and does not send it again.
func dropsResult(request *http.Request) (*http.Response, error) {
	if !isBatch(request) {
		return http.DefaultTransport.RoundTrip(request)
	}
	var sent struct{ Items []map[string]any }
	if err := json.Unmarshal(bodyOf(request), &sent); err != nil {
		return nil, err
	}
	found, err := http.DefaultTransport.RoundTrip(request)
	if err == nil {
		return found, nil
	}
	for _, one := range sent.Items {
		if one["answer"], one["status"] = "applied", "succeeded"; one["op"] == "checkpoint" {
			one["status"] = "leased"
		}
		delete(one, "steps")
	}
	text, err := json.Marshal(map[string]any{"items": sent.Items})
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(text))}, err
}

var (
	betweenSteps = make(chan struct{})
	firstBeat    = make(chan struct{})
	once         sync.Once
)

// workThread sends heartbeats only when a step has ended, as a worker does that has one thread for both. It claims after
// its first heartbeat, so that the kit sees that there are any.
func workThread(request *http.Request) (*http.Response, error) {
	var wait <-chan struct{}
	switch path.Base(request.URL.Path) {
	case "batch":
		select {
		case betweenSteps <- struct{}{}:
		default:
		}
	case "claim":
		wait = firstBeat
	case "heartbeat":
		once.Do(func() { close(firstBeat) })
		if bytes.Contains(bodyOf(request), []byte(`"fence"`)) {
			wait = betweenSteps
		}
	}
	if wait != nil {
		select {
		case <-wait:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	return http.DefaultTransport.RoundTrip(request)
}

func isBatch(request *http.Request) bool { return strings.HasSuffix(request.URL.Path, "/leases/batch") }

// bodyOf returns the body of a request, which can be read again.
func bodyOf(request *http.Request) []byte {
	body, _ := io.ReadAll(request.Body)
	request.Body = io.NopCloser(bytes.NewReader(body))
	return body
}
