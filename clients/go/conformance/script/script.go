// Package script executes the workflow of the conformance kit: a list of instructions. docs/conformance.md describes it.
package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"holdfast.internal/holdfast"
)

const scriptType = "conformance.script.v1"

// script is the params of a run.
type script struct {
	Ledger string        `json:"ledger"`
	Do     []instruction `json:"do"`
}

// instruction is one thing to do; the first field that is set says which.
type instruction struct {
	Step      *string         `json:"step"`
	Map       *string         `json:"map"`
	Each      []instruction   `json:"each"`
	Odd       bool            `json:"odd"`
	Letter    string          `json:"letter"`
	Sleep     *float64        `json:"sleep"`
	Event     *string         `json:"event"`
	Approval  *string         `json:"approval"`
	Child     json.RawMessage `json:"child"`
	Raise     *string         `json:"raise"`
	Now       bool            `json:"now"`
	Key       string          `json:"key"`
	Attempts  int             `json:"attempts"`
	DelayMS   *float64        `json:"delay_ms"`
	BlockMS   float64         `json:"block_ms"`
	Bytes     int             `json:"bytes"`
	Value     json.RawMessage `json:"value"`
	Or        json.RawMessage `json:"or"`
	TimeoutMS float64         `json:"timeout_ms"`
	Ask       string          `json:"ask"`
}

// Options returns the options that the kit gives by the environment.
func Options() holdfast.Options {
	return holdfast.Options{
		Name:  os.Getenv("HOLDFAST_WORKER"),
		Slots: int(number("HOLDFAST_SLOTS")),
		Lease: milliseconds(number("HOLDFAST_LEASE_MS")),
	}
}

// Main executes scripts until the process is asked to stop.
func Main(options holdfast.Options) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	worker := holdfast.New(options)
	holdfast.Handle(worker, scriptType, perform)
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func perform(ctx *holdfast.Context, params script) ([]any, error) {
	out := []any{}
	for _, one := range params.Do {
		found, err := one.perform(ctx, params.Ledger)
		if err != nil {
			return nil, err
		}
		out = append(out, found)
	}
	return out, nil
}

func (one instruction) perform(ctx *holdfast.Context, ledger string) (any, error) {
	switch {
	case one.Step != nil:
		return one.step(ctx, ledger)
	case one.Map != nil:
		return one.items(ctx, ledger)
	case one.Sleep != nil:
		ctx.Sleep(milliseconds(*one.Sleep))
		return "slept", nil
	case one.Event != nil:
		payload, err := holdfast.AwaitEvent[json.RawMessage](ctx, *one.Event, holdfast.Timeout(milliseconds(one.TimeoutMS)))
		if errors.Is(err, holdfast.ErrTimeout) {
			return "timeout", nil
		}
		return payload, err
	case one.Approval != nil:
		decision, err := ctx.Approval(*one.Approval, one.Ask, nil)
		return decision.Approved, err
	case one.Now:
		return ctx.Now().UnixMilli(), nil
	case one.Child != nil:
		return holdfast.Call[json.RawMessage](ctx, scriptType, one.Child)
	case one.Raise != nil:
		return nil, errors.New(*one.Raise)
	}
	return nil, holdfast.Fatal(errors.New("an instruction without a verb that this program knows"))
}

func (one instruction) step(ctx *holdfast.Context, ledger string) (any, error) {
	options := []holdfast.Option{holdfast.Key(one.Key), holdfast.Attempts(one.Attempts)}
	if one.DelayMS != nil {
		options = append(options, holdfast.Backoff(func(int) time.Duration { return milliseconds(*one.DelayMS) }))
	}
	name := *one.Step
	if one.Odd {
		name += "\xff"
	}
	value, err := holdfast.Step(ctx, name, func(ctx context.Context) (json.RawMessage, error) {
		return one.act(ctx, ledger, *one.Step)
	}, options...)
	var failed *holdfast.Failure
	if errors.As(err, &failed) && one.Or != nil {
		return one.Or, nil
	}
	return one.shown(value), err
}

// items executes a step for each item, all at once.
func (one instruction) items(ctx *holdfast.Context, ledger string) (any, error) {
	values, err := holdfast.Map(ctx, *one.Map, one.Each, len(one.Each), func(ctx context.Context, item instruction) (json.RawMessage, error) {
		return item.act(ctx, ledger, *one.Map)
	})
	found := make([]any, len(values))
	for n, value := range values {
		found[n] = one.Each[n].shown(value)
	}
	return found, err
}

// shown returns the value of a step, or the number of characters of a large one.
func (one instruction) shown(value json.RawMessage) any {
	if one.Bytes > 0 && value != nil {
		return utf8.RuneCount(value) - 2
	}
	return value
}

// act is the function of a step: it tells the ledger, and does what the ledger answers.
func (one instruction) act(ctx context.Context, ledger, step string) (json.RawMessage, error) {
	info := holdfast.Info(ctx)
	body, err := json.Marshal(map[string]string{"run": info.Run, "step": step, "key": info.IdempotencyKey})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, ledger, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusUnprocessableEntity:
		return nil, holdfast.Fatal(errors.New(string(text)))
	case response.StatusCode >= 400:
		return nil, errors.New(string(text))
	}
	for end := time.Now().Add(milliseconds(one.BlockMS)); time.Now().Before(end); {
		// A step that keeps its processor busy must not hold up the heartbeats.
	}
	if one.Bytes > 0 {
		letter := one.Letter
		if letter == "" {
			letter = "x"
		}
		return json.RawMessage(`"` + strings.Repeat(letter, (one.Bytes-2)/len(letter)) + `"`), nil
	}
	return one.Value, nil
}

func milliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// number reads a variable of the environment; 0 if it is not set.
func number(name string) float64 {
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	found, err := strconv.ParseFloat(text, 64)
	if err != nil {
		log.Fatal(fmt.Errorf("%s=%q is no number", name, text))
	}
	return found
}
