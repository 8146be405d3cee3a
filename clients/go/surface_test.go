package holdfast

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// waits waits until so many items have come.
func (f *fake) waits(t *testing.T, items int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(f.said()) < items; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d items are awaited: %v", items, f.said())
		}
	}
}

func TestNowNeverGoesBackWithinARun(t *testing.T) {
	const before = 1_700_000_005_000_000 // the clock of the store was set back since
	f := newFake(t)
	f.give(lease{ClaimedAt: 1_700_000_001_000_000, Steps: []recorded{
		{Seq: 1, Key: "now", Kind: "now", Status: "succeeded", Output: value(fmt.Sprint(before))},
	}})
	work(t, f, func(ctx *Context, _ none) ([]int64, error) {
		return []int64{ctx.Now().UnixMicro(), ctx.Now().UnixMicro(), ctx.Now().UnixMicro()}, nil
	})
	expect(t, string(f.last().Result), fmt.Sprintf("[%d,%d,%d]", before, before, before))
}

func TestAFailedItemOfAMapWhoseDelayIsOverIsGivenBackAtOnce(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	stop := begin(t, f, func(ctx *Context, _ none) (int, error) {
		failed := &step{Key: "m[0]", Status: "ready", Error: &Failure{Kind: "error"}}
		ctx.execution.giveBack([]*task{{key: "m[0]", due: ctx.execution.now() - time.Second, ready: failed}}, false)
		return 0, nil
	})
	f.waits(t, 1)
	stop()
	expect(t, f.last().DelayMS, 0.0)
	expect(t, *f.last().Steps[0].DelayMS, 0.0)
}

func TestAnErrorMayChooseItsDelay(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	stop := begin(t, f, func(ctx *Context, _ none) (int, error) {
		return Step(ctx, "a", func(context.Context) (int, error) {
			return 0, fmt.Errorf("busy: %w", RetryAfter(errors.New("come later"), time.Hour))
		})
	})
	f.waits(t, 1)
	stop()
	expect(t, f.said(), []string{"retry 1 a"})
	if found := duration(f.last().DelayMS); found < 59*time.Minute || found > time.Hour {
		t.Fatal(found)
	}
	expect(t, f.last().Error.Message, "busy: come later")
	expect(t, typeOf(RetryAfter(context.Canceled, 0)), "errors.errorString")
	expect(t, options{}.delay(RetryAfter(context.Canceled, -1), 1), time.Duration(0))
	expect(t, RetryAfter(nil, time.Second), nil)
}

func TestAWorkflowMayChooseTheDelayOfItsRun(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	calls := 0
	work(t, f, func(*Context, none) (int, error) {
		if calls++; calls == 1 {
			return 0, RetryAfter(errors.New("once more"), time.Millisecond)
		}
		return calls, nil
	})
	expect(t, f.said(), []string{"retry 1", "complete 2"})
	expect(t, f.items[0].DelayMS, 1.0)
}

func TestItemsOfAMapMayHaveNames(t *testing.T) {
	f := newFake(t)
	f.give(lease{Steps: []recorded{{Seq: 1, Key: "mail[b]", Kind: "task", Status: "succeeded", Output: value("7")}}})
	work(t, f, func(ctx *Context, _ none) ([]int, error) {
		named := ItemKey(func(name string) string { return name })
		return Map(ctx, "mail", []string{"a", "b"}, 1, func(context.Context, string) (int, error) { return 1, nil }, named)
	})
	expect(t, f.said(), []string{"checkpoint 1 mail[a]", "complete 2"})
	expect(t, string(f.last().Result), "[1,7]")
}

func TestWaitsHaveTheirOptions(t *testing.T) {
	for key, run := range map[string]func(*Context){
		"event:paid": func(ctx *Context) { _, _ = AwaitEvent[int](ctx, "paid", SinceNow()) },
		"nap":        func(ctx *Context) { ctx.Sleep(time.Hour, Key("nap")) },
		"later":      func(ctx *Context) { ctx.SleepUntil(time.Now(), Key("later")) },
		"shop.ship": func(ctx *Context) {
			at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
			_, _ = Call[int](ctx, "shop.ship.v1", 1, With(Child{RunAt: at, TTL: time.Minute, Budget: 2.5, CoversChildren: true}))
		},
	} {
		run := run
		f := newFake(t)
		f.give(lease{})
		stop := begin(t, f, func(ctx *Context, _ none) (int, error) { run(ctx); return 0, nil })
		f.waits(t, 1)
		stop()
		one := f.last().Steps[0]
		expect(t, []any{f.last().Op, one.Key, one.SinceNow}, []any{"park", key, key == "event:paid"})
		if key == "shop.ship" {
			expect(t, []any{one.Child.RunAt, one.Child.TTLMS, one.Child.Budget, one.Child.CoversChildren}, []any{"2030-01-02T03:04:05Z", 60_000.0, 2.5, true})
		}
	}
}

func TestADecisionHasItsTime(t *testing.T) {
	f := newFake(t)
	f.give(lease{Steps: []recorded{{Seq: 1, Key: "boss", Kind: "approval", Status: "succeeded",
		Output: value(`{"approved":true,"by":"ada","at":1700000000000001}`)}}})
	work(t, f, func(ctx *Context, _ none) (string, error) {
		found, err := ctx.Approval("boss", "Ship it?", nil)
		return fmt.Sprint(found.Approved, found.By, found.At.UnixMicro()), err
	})
	expect(t, string(f.last().Result), `"trueada1700000000000001"`)
}

func TestProgressSaysOnlyWhatIsKnown(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (int, error) { ctx.Progress(3, 0, ""); return 0, nil })
	expect(t, string(f.last().Progress), `{"done":3}`)
}

func TestATypeThatNobodyCouldExecuteIsRefused(t *testing.T) {
	for _, typ := range []string{"order", "shop.order", "shop.order.v0", "shop.twice.v1"} {
		w := New(Options{})
		Handle(w, "shop.twice.v1", func(*Context, none) (int, error) { return 0, nil })
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, "domain.action.vN") {
					t.Errorf("%s: %s", typ, said)
				}
			}()
			Handle(w, typ, func(*Context, none) (int, error) { return 0, nil })
		}()
	}
}

func TestAPlanIsLeftToOthers(t *testing.T) {
	f := newFake(t)
	f.give(lease{Kind: "plan"})
	stop := begin(t, f, func(*Context, none) (int, error) { t.Error("executed"); return 0, nil })
	f.waits(t, 1)
	stop()
	expect(t, []any{f.last().Op, f.last().Error.Kind, f.last().Refund}, []any{"retry", "no_handler", true})
}

func TestANumberThatIsTakenStopsTheRun(t *testing.T) {
	f := newFake(t)
	f.batch = func(_ int, items []item) []answer {
		found := applied(items)
		if items[0].Run == runID {
			found[0].Problem = &Problem{Code: "conflict", Status: 409}
		}
		return found
	}
	f.give(lease{})
	f.give(lease{held: held{Run: "other"}})
	work(t, f, func(ctx *Context, _ none) (int, error) {
		if ctx.RunID() == "other" {
			f.waits(t, 1)
			return 0, nil
		}
		return Step(ctx, "a", value1)
	})
	expect(t, f.said(), []string{"checkpoint 1 a", "complete 1"})
}

func TestThePauseBetweenTriesGrows(t *testing.T) {
	for tries, wanted := range map[int]time.Duration{0: retryMin, 1: 2 * retryMin, 3: 8 * retryMin, 99: retryMax} {
		expect(t, grown(tries), wanted)
	}
}
