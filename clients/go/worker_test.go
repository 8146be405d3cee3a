package holdfast

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

type none = struct{}

func value1(context.Context) (int, error) { return 1, nil }

func expect(t *testing.T, found, wanted any) {
	t.Helper()
	if !reflect.DeepEqual(found, wanted) {
		t.Fatalf("\nfound  %v\nwanted %v", found, wanted)
	}
}

// The test vectors of the protocol: names are counted by name alone, and a child has the name of its type.
func TestKeysAreNumberedByName(t *testing.T) {
	f := newFake(t)
	f.batch = func(_ int, items []item) []answer {
		found := applied(items)
		for n, one := range items {
			for _, step := range one.Steps {
				if one.Op == "park" {
					found[n].Status = "leased"
					output := value(`{"payload":null,"result":null}`)
					found[n].Settled = append(found[n].Settled, recorded{Key: step.Key, Kind: step.Kind, Status: "succeeded", Output: output})
				}
			}
		}
		return found
	}
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (none, error) {
		_, _ = Step(ctx, "a", value1)
		ctx.Sleep(time.Second)
		ctx.Sleep(time.Second)
		_, _ = AwaitEvent[any](ctx, "paid:42")
		_, _ = Call[any](ctx, "shop.ship.v2", nil)
		_, _ = Step(ctx, "a", value1)
		ctx.Sleep(time.Second)
		_, _ = Map(ctx, "a", []int{1, 2}, 1, func(context.Context, int) (int, error) { return 1, nil })
		return none{}, nil
	})
	expect(t, f.said(), []string{
		"checkpoint 1 a", "park 2 sleep", "park 3 sleep#2", "park 4 event:paid:42", "park 5 shop.ship",
		"checkpoint 6 a#2", "park 7 sleep#3", "checkpoint 8 a#3[0]", "checkpoint 9 a#3[1]", "complete 10",
	})
}

func TestALostAnswerRepeatsTheSameItem(t *testing.T) {
	f := newFake(t)
	f.batch = func(number int, items []item) []answer {
		if number <= 2 {
			return nil
		}
		return applied(items)
	}
	f.give(lease{})
	calls := 0
	work(t, f, func(ctx *Context, _ none) (int, error) {
		return Step(ctx, "charge", func(context.Context) (int, error) { calls++; return calls, nil })
	})
	expect(t, calls, 1)
	expect(t, f.said(), []string{"checkpoint 1 charge", "checkpoint 1 charge", "checkpoint 1 charge", "complete 2"})
	expect(t, f.raw[0], f.raw[1])
	expect(t, string(f.last().Result), "1")
}

func TestRecordedStepsAreNotRunAgain(t *testing.T) {
	f := newFake(t)
	f.give(lease{Params: value(`{"id":9007199254740993}`), Steps: []recorded{
		{Seq: 1, Key: "a", Kind: "task", Status: "succeeded", Output: value(`{"n":9007199254740993}`)},
		{Seq: 2, Key: "sleep", Kind: "sleep", Status: "succeeded"},
		{Seq: 3, Key: "b", Kind: "task", Status: "failed", Error: &Failure{Kind: "exhausted", Message: "no"}},
	}})
	work(t, f, func(ctx *Context, params map[string]any) ([]any, error) {
		found, err := Step(ctx, "a", func(context.Context) (any, error) { t.Error("run again"); return nil, nil })
		ctx.Sleep(time.Hour)
		_, failed := Step(ctx, "b", value1)
		return []any{params["id"], found, failed.Error()}, err
	})
	expect(t, f.said(), []string{"complete 1"})
	expect(t, string(f.last().Result), `[9007199254740993,{"n":9007199254740993},"step \"b\": exhausted: no"]`)
}

func TestItemsThatGatherGoWithTheNextBatch(t *testing.T) {
	f := newFake(t)
	busy := make(chan struct{})
	f.batch = func(number int, items []item) []answer {
		if number == 1 {
			<-busy
		}
		return applied(items)
	}
	for _, id := range []string{"1", "2", "3", "4"} {
		f.give(lease{held: held{Run: id}})
	}
	var begun atomic.Int32
	stop := begin(t, f, func(ctx *Context, _ none) (int, error) {
		if begun.Add(1) == 4 {
			time.AfterFunc(50*time.Millisecond, func() { close(busy) })
		}
		return 0, nil
	})
	for n := 0; n < 4; n++ {
		f.ended(t)
	}
	stop()
	if f.bodies["/leases/batch"] > 3 {
		t.Fatalf("%d requests for 4 items", f.bodies["/leases/batch"])
	}
}

func TestARefusedItemFailsTheRunUnderTheSameNumber(t *testing.T) {
	f := newFake(t)
	f.batch = func(number int, items []item) []answer {
		found := applied(items)
		if number == 1 {
			found[0].Problem = &Problem{Code: "too-large", Status: 413, Detail: "it is too large"}
		}
		return found
	}
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (int, error) { return Step(ctx, "a", value1) })
	expect(t, f.said(), []string{"checkpoint 1 a", "fail 1"})
	expect(t, *f.last().Error, Failure{Kind: "too_large", Message: "it is too large"})
}

func TestABusyRowIsTriedAgain(t *testing.T) {
	f := newFake(t)
	f.batch = func(number int, items []item) []answer {
		found := applied(items)
		if number == 1 {
			found[0].Problem = &Problem{Code: "run-busy", Status: 409, Retryable: true, RetryAfterMS: 5}
		}
		return found
	}
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (int, error) { return Step(ctx, "a", value1) })
	expect(t, f.said(), []string{"checkpoint 1 a", "checkpoint 1 a", "complete 2"})
}

func TestALostLeaseStopsTheRun(t *testing.T) {
	f := newFake(t)
	f.batch = func(number int, items []item) []answer {
		found := applied(items)
		if items[0].Run == runID {
			found[0].Problem = &Problem{Code: "lease-lost", Status: 409}
		}
		return found
	}
	f.give(lease{})
	f.give(lease{held: held{Run: "other"}})
	var after atomic.Bool
	work(t, f, func(ctx *Context, _ none) (int, error) {
		if ctx.RunID() == "other" {
			time.Sleep(50 * time.Millisecond)
			return 0, nil
		}
		_, _ = Step(ctx, "a", value1)
		after.Store(true)
		return 0, nil
	})
	expect(t, after.Load(), false)
	expect(t, f.said(), []string{"checkpoint 1 a", "complete 1"})
}

func TestAHeartbeatInterruptsACancelledRun(t *testing.T) {
	f := newFake(t)
	f.heartbeat = func(_ int, body heartbeat) (found news) {
		for _, one := range body.Leases {
			found.Leases = append(found.Leases, leaseNews{one.Run, "cancelled", false})
		}
		return found
	}
	f.give(lease{})
	interrupted := make(chan error, 1)
	stop := begin(t, f, func(ctx *Context, _ none) (int, error) {
		return Step(ctx, "slow", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			interrupted <- ctx.Err()
			return 1, nil
		})
	})
	expect(t, <-interrupted, context.Canceled)
	stop()
	expect(t, f.said(), []string(nil))
}

func TestNoStepBeginsUnderALeaseThatMayBeOver(t *testing.T) {
	f := newFake(t)
	var sure atomic.Bool
	f.heartbeat = func(_ int, body heartbeat) news {
		sure.Store(len(body.Leases) > 0)
		return holding(body)
	}
	f.give(lease{LeaseMS: 0.001})
	work(t, f, func(ctx *Context, _ none) (bool, error) {
		return Step(ctx, "a", func(context.Context) (bool, error) { return sure.Load(), nil })
	})
	expect(t, string(f.last().Result), "true")
}

func TestARunOfALostClaimIsGivenBack(t *testing.T) {
	f := newFake(t)
	stray := held{Run: "stray", Fence: 7, Token: "s"}
	f.heartbeat = func(_ int, body heartbeat) news {
		found := holding(body)
		found.Strays = []held{stray}
		return found
	}
	stop := begin(t, f, func(*Context, none) (int, error) { return 0, nil })
	f.ended(t)
	expect(t, f.last().held, stray)
	expect(t, f.said()[0], "release 1")
	f.heartbeat = nil
	stop()
}

func TestAnEarlierOutcomeCounts(t *testing.T) {
	f := newFake(t)
	f.load = func(load) loaded {
		return loaded{Steps: []recorded{{Seq: 1, Key: "a", Kind: "task", Status: "succeeded", Output: value("7")}}}
	}
	f.batch = func(_ int, items []item) []answer {
		found := applied(items)
		if items[0].Op == "checkpoint" {
			found[0].Kept = []recorded{{Key: "a"}}
		}
		return found
	}
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (int, error) { return Step(ctx, "a", value1) })
	expect(t, string(f.last().Result), "7")
}

func TestALargeRunIsReadInPages(t *testing.T) {
	f := newFake(t)
	f.load = func(body load) loaded {
		if body.After == nil {
			one := recorded{Seq: 1, Key: "a", Kind: "task", Status: "succeeded", Output: value("1")}
			return loaded{Params: value("5"), Steps: []recorded{one}, More: true}
		}
		one := recorded{Seq: *body.After + 1, Key: "b", Kind: "task", Status: "succeeded", Output: value("2")}
		return loaded{Steps: []recorded{one}}
	}
	f.give(lease{Unread: true})
	work(t, f, func(ctx *Context, params int) ([]int, error) {
		a, _ := Step(ctx, "a", value1)
		b, err := Step(ctx, "b", value1)
		return []int{params, a, b}, err
	})
	expect(t, string(f.last().Result), "[5,1,2]")
}

func TestMistakesFailTheRun(t *testing.T) {
	for kind, run := range map[string]func(*Context, none) (any, error){
		"usage: the key": func(ctx *Context, _ none) (any, error) {
			_, _ = Step(ctx, "a", value1, Key("b"))
			return Step(ctx, "b", value1)
		},
		"usage: a durable call": func(ctx *Context, _ none) (any, error) {
			return Step(ctx, "a", func(context.Context) (int, error) { return Step(ctx, "b", value1) })
		},
		"usage: a name is": func(ctx *Context, _ none) (any, error) { return Step(ctx, strings.Repeat("ä", 641), value1) },
		"drift: step":      func(ctx *Context, _ none) (any, error) { return Step(ctx, "sleep", value1) },
		"encoding: step": func(ctx *Context, _ none) (any, error) {
			return Step(ctx, "number", func(context.Context) (func(), error) { return nil, nil })
		},
		"fatal: no":       func(ctx *Context, _ none) (any, error) { return nil, Fatal(errors.New("no")) },
		"exhausted: boom": func(ctx *Context, _ none) (any, error) { panic("boom") },
	} {
		f := newFake(t)
		f.give(lease{MaxAttempts: 1, Steps: []recorded{{Seq: 1, Key: "sleep", Kind: "sleep", Status: "succeeded"}}})
		work(t, f, run)
		found := f.last()
		if said := found.Error.Kind + ": " + found.Error.Message; found.Op != "fail" || !strings.HasPrefix(said, kind) {
			t.Errorf("%s: %s %s", kind, found.Op, said)
		}
	}
}

func TestAMapRunsItsItemsAtOnceAndRetriesThem(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	var running, most, tries atomic.Int32
	work(t, f, func(ctx *Context, _ none) ([]int, error) {
		return Map(ctx, "square", []int{1, 2, 3, 4, 5, 6}, 3, func(ctx context.Context, n int) (int, error) {
			if now := running.Add(1); now > most.Load() {
				most.Store(now)
			}
			time.Sleep(20 * time.Millisecond)
			running.Add(-1)
			if n == 4 && tries.Add(1) == 1 {
				return 0, errors.New("not yet")
			}
			return n * n, nil
		}, Backoff(func(int) time.Duration { return time.Millisecond }))
	})
	expect(t, string(f.last().Result), "[1,4,9,16,25,36]")
	expect(t, most.Load(), int32(3))
	expect(t, tries.Load(), int32(2))
}

func TestTheFirstFailureEndsAMap(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) ([]int, error) {
		return Map(ctx, "m", []int{0, 1}, 2, func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				return 0, Fatal(errors.New("no"))
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
	})
	expect(t, f.said(), []string{"checkpoint 1 m[0]", "fail 2"})
	expect(t, f.last().Error.Step, "m[0]")
}

func TestTheDefaultDelayDoubles(t *testing.T) {
	for n, wanted := range map[int]time.Duration{1: 2 * time.Second, 3: 8 * time.Second, 50: time.Hour} {
		if found := (options{}).delay(nil, n); found < wanted || found > wanted*11/10 {
			t.Errorf("after failure %d: %v", n, found)
		}
	}
}

func TestALaterLeaseEndsTheOlderExecution(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	interrupted := make(chan error, 1)
	stop := begin(t, f, func(ctx *Context, _ none) (int, error) {
		return Step(ctx, "a", func(step context.Context) (int, error) {
			if ctx.execution.lease.Fence == 2 {
				return 2, nil
			}
			f.give(lease{held: held{Fence: 2}})
			<-step.Done()
			interrupted <- step.Err()
			return 1, nil
		})
	})
	expect(t, <-interrupted, context.Canceled)
	f.ended(t)
	stop()
	expect(t, f.said(), []string{"checkpoint 1 a", "complete 2"})
	expect(t, f.last().Fence, int64(2))
}

func TestWorkersWithOneNameAreToldApart(t *testing.T) {
	one, two := New(Options{Name: "shop"}).options.Name, New(Options{Name: "shop"}).options.Name
	if one == two || !strings.HasPrefix(one, "shop:") {
		t.Fatal(one, two)
	}
}
