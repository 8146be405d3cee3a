package holdfast

import (
	"errors"
	"time"
)

// Option changes a durable call.
type Option func(*options)

type options struct {
	key      string
	attempts int
	backoff  func(n int) time.Duration
	timeout  time.Duration
	costMax  float64
	approve  bool
	sinceNow bool
	itemKey  func(item any) string
	child    Child
}

// Key records a step under this key instead of its name.
func Key(key string) Option { return func(o *options) { o.key = key } }

// Attempts says how often a step is tried in all. The default is that of the run: 3.
func Attempts(n int) Option { return func(o *options) { o.attempts = n } }

// Backoff says how long to wait after the n-th failure. The default is 2ⁿ seconds, at most an hour, and up to 10 % more.
func Backoff(delay func(n int) time.Duration) Option { return func(o *options) { o.backoff = delay } }

// Timeout bounds each try of a step, or the time that an event or an approval is awaited.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// SinceNow makes [AwaitEvent] wait for a later event. Without it, events since the start of the run count, the oldest
// first, each once.
func SinceNow() Option { return func(o *options) { o.sinceNow = true } }

// ItemKey names the items of a [Map], in place of their positions: then they may change their order, and others may come
// between them.
func ItemKey[A any](name func(item A) string) Option {
	return func(o *options) { o.itemKey = func(item any) string { return name(item.(A)) } }
}

// CostMax says what one try of a step may cost at most. A run whose budget may not pay for it is paused before the step.
func CostMax(amount float64) Option { return func(o *options) { o.costMax = amount } }

func chosen(opts []Option) (o options) {
	for _, one := range opts {
		one(&o)
	}
	return o
}

// delay returns how long to wait after the n-th failure: as its error says, or as the options do.
func (o options) delay(err error, n int) time.Duration {
	var later retryAfter
	if n < 1 {
		n = 1
	}
	switch {
	case errors.As(err, &later):
		return positive(later.delay)
	case o.backoff != nil:
		return positive(o.backoff(n))
	}
	delay := time.Hour
	if n < 12 {
		delay = time.Second << n
	}
	return delay + time.Duration(below(int64(delay)/10))
}

func positive(d time.Duration) time.Duration {
	if d < 0 {
		return 0
	}
	return d
}
