package holdfast

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A claim may be long on its way. The time of the run counts from its answer, and the end of the lease from the request.
func TestASlowClaimUsesUpNoTimeOfItsRun(t *testing.T) {
	f := newFake(t)
	f.claim = func(int) bool { time.Sleep(300 * time.Millisecond); return true }
	limit := 200.0
	f.give(lease{TimeoutMS: &limit, ClaimedAt: 1_700_000_000_000_000})
	work(t, f, func(ctx *Context, _ none) (bool, error) {
		at := ctx.Now()
		if ctx.execution.until.Load() > int64(29_700*time.Millisecond) {
			t.Error("the lease ends later than in the store")
		}
		_, err := Step(ctx, "a", value1)
		return at.UnixMicro() < 1_700_000_000_200_000, err
	})
	expect(t, f.last().Op+string(f.last().Result), "completetrue")
	if began := *f.items[0].Steps[1].StartedMS; began < 0 || began > limit {
		t.Fatal(began)
	}
}

func TestTextThatWouldNotComeBackIsRefused(t *testing.T) {
	odd := map[string]string{"not UTF-8": "a\xff", "NUL": "a\x00", "too long": strings.Repeat("ä", 701)}
	calls := map[string]func(*Context, string) error{
		"name": func(ctx *Context, text string) error { _, err := Step(ctx, text, value1); return err },
		"key":  func(ctx *Context, text string) error { _, err := Step(ctx, "a", value1, Key(text)); return err },
		"item": func(ctx *Context, text string) error {
			run := func(context.Context, string) (int, error) { return 1, nil }
			_, err := Map(ctx, "a", []string{text}, 1, run, ItemKey(func(one string) string { return one }))
			return err
		},
		"event": func(ctx *Context, text string) error {
			_, err := AwaitEvent[any](ctx, text, Key("mine"))
			return err
		},
		"emit": func(ctx *Context, text string) error { return ctx.Emit(text, 1, Key("mine")) },
	}
	for what, text := range odd {
		for name, call := range calls {
			call := call
			f := newFake(t)
			f.give(lease{Params: value("null")})
			work(t, f, func(ctx *Context, _ none) (any, error) { return nil, call(ctx, text) })
			if found := f.last(); found.Op != "fail" || found.Error.Kind != "usage" || len(f.items) != 1 {
				t.Errorf("%s, %s: %v %v", name, what, f.said(), found.Error)
			}
		}
	}
}

// A repeated name has a number behind it, and an item its place: such keys are longer than a name.
func TestANameOf640CharactersMayBeUsedTwice(t *testing.T) {
	f := newFake(t)
	name := strings.Repeat("ä", 640)
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (any, error) {
		_, _ = Step(ctx, name, value1)
		_, _ = Step(ctx, name, value1)
		return Map(ctx, name, []int{1}, 1, func(context.Context, int) (int, error) { return 1, nil })
	})
	expect(t, f.said(), []string{"checkpoint 1 " + name, "checkpoint 2 " + name + "#2", "checkpoint 3 " + name + "#3[0]", "complete 4"})
}

// At a stop, the failed try whose retry is minutes away must be recorded: else it would be tried more often than it may.
func TestAStopRecordsAFailedTry(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	begun := make(chan struct{}, 2)
	stop := begin(t, f, func(ctx *Context, _ none) (any, error) {
		return Map(ctx, "m", []int{0, 1, 2, 3}, 2, func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				Info(ctx).Log("tried", nil)
				return 0, errors.New("not yet")
			}
			begun <- struct{}{}
			time.Sleep(200 * time.Millisecond)
			return n, nil
		}, Backoff(func(int) time.Duration { return time.Minute }))
	})
	<-begun
	<-begun
	go stop()
	f.waits(t, 2)
	stop()
	last := f.last()
	expect(t, []any{last.Op, last.Refund, last.DelayMS, len(last.Logs)}, []any{"retry", true, 0.0, 1})
	one := last.Steps[len(last.Steps)-1]
	expect(t, []any{one.Key, one.Status, one.Attempts, *one.DelayMS > 50_000}, []any{"m[0]", "ready", 1, true})
}

func TestATypeLosesItsVersion(t *testing.T) {
	for typ, wanted := range map[string]string{
		"shop.ship.v2": "shop.ship", "shop.ship.v99999999999": "shop.ship", "shop.v2.ship": "shop.v2.ship", "shop.ship.v": "shop.ship.v",
	} {
		expect(t, unversioned(typ), wanted)
	}
}

// What steps emit counts too: one item must not become larger than the server takes.
func TestResultsThatAreGatheredHaveABound(t *testing.T) {
	results := make(chan *try, 5)
	for n := 0; n < 5; n++ {
		one := &try{info: &StepInfo{Key: "a"}}
		if err := one.info.Emit("topic", strings.Repeat("x", 3<<20)); err != nil {
			t.Fatal(err)
		}
		results <- one
	}
	for _, wanted := range []int{2, 2, 1} {
		expect(t, len(gathered(results)), wanted)
	}
}
