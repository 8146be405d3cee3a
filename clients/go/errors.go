package holdfast

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrTimeout is what a [Failure] of kind timeout is: a step, an awaited event or a run that took too long.
var ErrTimeout = errors.New("holdfast: timeout")

// Failure is the recorded failure of a step, an awaited event or a called child run. A workflow gets the same
// failure in every execution. If the workflow returns it, wrapped or not, the run fails with it.
type Failure struct {
	Kind        string `json:"kind"` // exhausted, fatal, timeout, child_failed, …
	Type        string `json:"type,omitempty"`
	Message     string `json:"message,omitempty"`
	Traceback   string `json:"traceback,omitempty"`
	Step        string `json:"step,omitempty"`
	Attempt     int    `json:"attempt,omitempty"`
	MaxAttempts int    `json:"max_attempts,omitempty"`
}

func (f *Failure) Error() string {
	if f.Step == "" {
		return fmt.Sprintf("%s: %s", f.Kind, f.Message)
	}
	return fmt.Sprintf("step %q: %s: %s", f.Step, f.Kind, f.Message)
}

// Is makes errors.Is(err, ErrTimeout) true for a timeout.
func (f *Failure) Is(target error) bool {
	return target == ErrTimeout && f.Kind == "timeout"
}

type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal marks an error that no retry helps against: the step, or the run, fails at once.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return fatal{err}
}

type retryAfter struct {
	error
	delay time.Duration
}

func (r retryAfter) Unwrap() error { return r.error }

// RetryAfter marks an error after which the next try, of the step or the run, comes after this time.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return retryAfter{err, delay}
}

// panicked is a panic of user code.
type panicked struct {
	message string
	stack   string
}

func (p panicked) Error() string { return p.message }

// continued is what [Context.ContinueAs] returns.
type continued struct{ params value }

func (continued) Error() string {
	return "holdfast: the result of ContinueAs was not returned by the workflow"
}

// Problem is a refusal of the server.
type Problem struct {
	Code         string  `json:"code"`
	Status       int     `json:"status"`
	Detail       string  `json:"detail"`
	Retryable    bool    `json:"retryable"`
	RetryAfterMS float64 `json:"retry_after_ms"`
}

func (p *Problem) Error() string {
	return fmt.Sprintf("the server refused it (%d %s): %s", p.Status, p.Code, p.Detail)
}

const (
	messageMax   = 4_000
	tracebackMax = 16_000
)

// failureOf returns the record of an error: kind, class, message, and the stack of a panic.
func failureOf(err error, kind string) *Failure {
	f := &Failure{Kind: kind, Type: typeOf(err), Message: clipped(err.Error(), messageMax)}
	var p panicked
	if errors.As(err, &p) {
		f.Type, f.Traceback = "panic", clipped(p.stack, tracebackMax)
	}
	return f
}

func typeOf(err error) string {
	var f fatal
	var later retryAfter
	if errors.As(err, &f) {
		err = f.error
	} else if errors.As(err, &later) {
		err = later.error
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
}

// clipped returns at most so many characters, without NUL: no store keeps it.
func clipped(text string, most int) string {
	runes := []rune(strings.ReplaceAll(text, "\x00", `\0`))
	if len(runes) > most {
		runes = runes[:most]
	}
	return string(runes)
}
