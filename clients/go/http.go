package holdfast

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	retryMin    = 50 * time.Millisecond
	retryMax    = 2 * time.Second
	patience    = 10 * time.Second // for an answer that the server gives at once
	bytesSecond = 256 * 1024       // a slow network still carries so many bytes in a second
	answerMax   = 256 << 20
	askedMax    = 30 * time.Second // a server, or a proxy, that asks for a longer pause is asked again after this
	silentTries = 3                // failures in a row that are worth a line: a server that restarts is not
)

// refusals are the problems that refuse a request for good. Any other answer that is no success comes from a proxy, or
// from a server that cannot answer now: it says nothing about the request.
var refusals = map[string]bool{
	"bad-json": true, "not-json": true, "bad-value": true, "too-large": true, "head-too-large": true,
	"unauthenticated": true, "scope-missing": true, "host-refused": true, "origin-refused": true,
	"run-not-found": true, "workflow-not-found": true, "conflict": true, "illegal-move": true, "key-reused": true,
	"lease-lost": true, "run-busy": true, "unreadable": true, "unknown-operation": true, "protocol-version": true,
}

// connection sends requests to one server.
type connection struct {
	client   *http.Client
	base     string
	query    string
	key      string
	log      *log.Logger
	failures atomic.Int64 // requests in a row that were not answered
}

// unanswered is an answer that is not from a Holdfast server, or that says only that it cannot answer now.
type unanswered struct {
	status int
	text   string
}

func (u unanswered) Error() string {
	return fmt.Sprintf("status %d without an answer: %s", u.status, u.text)
}

// unsendable is a request that cannot be made.
type unsendable struct{ error }

func connect(options Options) *connection {
	// A redirect would make a GET of a request, and send the key elsewhere.
	client := *options.HTTP
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := &connection{client: &client, base: strings.TrimRight(options.URL, "/"), key: options.Key, log: options.Log}
	if options.Tenant != "" {
		c.query = "?tenant=" + url.QueryEscape(options.Tenant)
	}
	return c
}

// checked returns what is wrong with the address and the key.
func (c *connection) checked() error {
	base, err := url.Parse(c.base)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" {
		return fmt.Errorf("holdfast: %q is no address of a server: set HOLDFAST_URL or Options.URL, as in http://127.0.0.1:8080", c.base)
	}
	if strings.IndexFunc(c.key, func(r rune) bool { return r <= ' ' || r == 0x7f }) >= 0 {
		return errors.New("holdfast: the API key has a space or a line break: set HOLDFAST_KEY or Options.Key to the key alone")
	}
	return nil
}

// ask sends a request until it is answered. It returns a refusal that no repetition cures, or the error of ctx.
func (c *connection) ask(ctx context.Context, path string, body, into any, wait time.Duration) error {
	text, err := sendable(body)
	if err != nil {
		return err
	}
	for pause := retryMin; ; pause = longer(pause) {
		after, err := c.once(ctx, path, text, into, wait)
		if err == nil || !repeatable(err) || ctx.Err() != nil {
			return err
		}
		if after == 0 {
			after = jittered(pause)
		}
		if !sleep(ctx, after) {
			return ctx.Err()
		}
	}
}

// once sends a request one time, and counts failures in a row. On a refusal it also returns how long the server asks
// to wait.
func (c *connection) once(ctx context.Context, path string, body, into any, wait time.Duration) (time.Duration, error) {
	text, err := sendable(body)
	if err != nil {
		return 0, err
	}
	after, err := c.post(ctx, path, text, into, wait)
	switch {
	case ctx.Err() != nil: // it was given up: that says nothing about the server
	case err == nil || !repeatable(err):
		if c.failures.Swap(0) >= silentTries {
			c.log.Printf("holdfast: the server answers again")
		}
	case c.failures.Add(1) == silentTries:
		c.log.Printf("holdfast: %s does not answer, trying again: %v", c.base, err)
	}
	return after, err
}

// sendable returns the body of a request as JSON; a value is JSON already.
func sendable(body any) (value, error) {
	if text, ready := body.(value); ready {
		return text, nil
	}
	text, err := encode(body)
	if err != nil {
		return nil, unsendable{err}
	}
	return text, nil
}

func (c *connection) post(ctx context.Context, path string, body []byte, into any, wait time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+time.Duration(len(body)/bytesSecond)*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path+c.query, bytes.NewReader(body))
	if err != nil {
		return 0, unsendable{err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Holdfast-Protocol", "1")
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return 0, err
	}
	if response.StatusCode >= 300 {
		return refusal(response, text)
	}
	if into == nil {
		return 0, nil
	}
	return 0, json.Unmarshal(text, into)
}

// refusal returns how long to wait, and a [*Problem] if the server refuses the request, else an unanswered.
func refusal(response *http.Response, text []byte) (time.Duration, error) {
	problem := &Problem{}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	known := media == "application/problem+json" && json.Unmarshal(text, problem) == nil
	if !known {
		problem = &Problem{Detail: clipped(string(text), 200)}
	}
	problem.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && problem.RetryAfterMS == 0 {
		problem.RetryAfterMS = float64(seconds) * 1000
	}
	after := asked(problem.RetryAfterMS)
	switch {
	case known && refusals[problem.Code] && problem.Status < 500:
		return after, problem
	case problem.Status == 413: // a proxy refuses large bodies too
		problem.Code = "too-large"
		return after, problem
	}
	return after, unanswered{problem.Status, problem.Detail}
}

// asked returns the pause that a server asks for, within reason.
func asked(ms float64) time.Duration {
	switch {
	case !(ms > 0):
		return 0
	case ms > float64(askedMax/time.Millisecond):
		return askedMax
	}
	return duration(ms)
}

// repeatable says whether the same request may succeed later. Without a refusal it may.
func repeatable(err error) bool {
	switch err := err.(type) {
	case *Problem:
		return err.Retryable
	case unsendable:
		return false
	}
	return true
}

// forbids says whether a refusal means that this worker can do nothing more.
func forbids(err error) error {
	problem, refused := err.(*Problem)
	switch {
	case !refused:
		return nil
	case problem.Status == 401:
		return fmt.Errorf("holdfast: the server does not know the API key, or it was revoked: %s", problem.Detail)
	case problem.Status == 403:
		return fmt.Errorf("holdfast: the API key needs the scope work, and the types of this worker: %s", problem.Detail)
	case problem.Code == "protocol-version":
		return fmt.Errorf("holdfast: %s", problem.Detail)
	}
	return nil
}

// grown returns the pause before the next try after so many others.
func grown(tries int) time.Duration {
	pause := retryMin
	for ; tries > 0 && pause < retryMax; tries-- {
		pause = longer(pause)
	}
	return pause
}

func longer(pause time.Duration) time.Duration {
	if pause *= 2; pause > retryMax {
		return retryMax
	}
	return pause
}

func jittered(pause time.Duration) time.Duration {
	return pause/2 + time.Duration(below(int64(pause)/2+1))
}

// below draws a number from 0 to n-1. math/rand has the same numbers in every process before Go 1.20: after a restart of
// the server all workers would come back at the same moments.
func below(n int64) int64 {
	drawn, err := rand.Int(rand.Reader, big.NewInt(n))
	if err != nil {
		return 0
	}
	return drawn.Int64()
}

// sleep waits; it returns false if ctx ended first.
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
