package holdfast

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// Two items fail while the result of another one is sent, so both failures go into the next commit. The first execution
// and a later one get the failure of the same item.
func TestTwoFailuresOfAMapGiveTheSameErrorInEveryExecution(t *testing.T) {
	failed := make(chan struct{})
	workflow := func(ctx *Context, _ none) (string, error) {
		_, err := Map(ctx, "m", []time.Duration{0, 1, 2}, 3, func(_ context.Context, n time.Duration) (int, error) {
			time.Sleep(n * 20 * time.Millisecond)
			if n == 0 {
				return 0, nil
			}
			if n == 2 {
				time.AfterFunc(20*time.Millisecond, func() { close(failed) })
			}
			return 0, Fatal(fmt.Errorf("item %d", n))
		})
		return err.Error(), nil
	}
	f := newFake(t)
	f.batch = func(number int, items []item) []answer {
		<-failed
		return applied(items)
	}
	f.give(lease{})
	work(t, f, workflow)
	expect(t, f.said(), []string{"checkpoint 1 m[0]", "checkpoint 2 m[1] m[2]", "complete 3"})
	var steps []recorded
	for _, one := range append(f.items[0].Steps, f.items[1].Steps...) {
		steps = append(steps, recorded{Seq: int64(len(steps) + 1), Key: one.Key, Kind: "task", Status: one.Status, Output: one.Output, Error: one.Error})
	}
	set(&steps[0].Status, "succeeded")
	again := newFake(t)
	again.give(lease{Steps: steps})
	work(t, again, workflow)
	expect(t, string(again.last().Result), string(f.last().Result))
}

// The test vectors of docs/worker-protocol.md.
func TestChanceIsThatOfEveryLanguage(t *testing.T) {
	g := newGenerator(runID)
	expect(t, []uint32{g.draw(), g.draw(), g.draw()}, []uint32{2553519407, 2691697046, 800631892})
	g = newGenerator(runID)
	expect(t, []float64{g.number(), g.number(), g.number()}, []float64{0.5945375682913479, 0.18641163617443557, 0.28448018326045066})
	g = newGenerator(runID)
	expect(t, []string{g.uuid(), g.uuid()}, []string{"47b4544c-2fb8-4c54-a070-099698339d2f", "022d148d-448a-43c3-9bb5-b43a48d3b16d"})
	expect(t, newGenerator(runID+":charge").number(), 0.38074814018820613)
	expect(t, newGenerator(runID+":charge").uuid(), "f19fe94b-bc48-49a5-90f8-276b6178b5d0")
}

func TestEffectsGoWithTheCommitOfTheirStep(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (float64, error) {
		expect(t, ctx.Send("mail", 1, ""), nil)
		return Step(ctx, "a", func(ctx context.Context) (float64, error) {
			expect(t, Info(ctx).Emit("paid", 2), nil)
			expect(t, Info(ctx).Send("mail", 3, "customer"), nil)
			Info(ctx).Log("said", nil)
			if Info(ctx).Attempt == 1 {
				return 0, errors.New("once more")
			}
			return Info(ctx).Random(), nil
		}, Backoff(func(int) time.Duration { return 0 }))
	})
	retry, done := f.items[0], f.items[1]
	expect(t, f.said(), []string{"retry 1 send:mail a", "checkpoint 2 a", "complete 3"})
	expect(t, []any{len(retry.Logs), len(retry.Events), retry.Messages}, []any{1, 0, []message{{"mail", value("1"), "", "send:mail", 1}}})
	expect(t, string(done.Logs[0]), `{"level":"info","message":"said","step":"a"}`)
	expect(t, done.Events, []event{{"a:emit1", "paid", value("2")}})
	expect(t, done.Messages, []message{{"mail", value("3"), "customer", "a", 1}})
	expect(t, string(f.last().Result), "0.42818576850545176")
}

func TestABudgetThatMayNotPayForAStepPausesTheRunBeforeIt(t *testing.T) {
	f := newFake(t)
	budget := 1.0
	f.give(lease{Cost: 0.25, Budget: &budget})
	work(t, f, func(ctx *Context, _ none) (any, error) {
		_, _ = Step(ctx, "a", func(ctx context.Context) (int, error) { Info(ctx).AddCost(0.5); return 1, nil }, CostMax(0.75))
		return Step(ctx, "b", func(context.Context) (any, error) { t.Error("begun"); return nil, nil }, CostMax(0.5))
	})
	expect(t, f.said(), []string{"checkpoint 1 a", "release 2"})
	expect(t, []any{f.last().Before, f.last().CostMax}, []any{"b", 0.5})
}

func TestALongStepIsShown(t *testing.T) {
	f := newFake(t)
	seen := make(chan struct{})
	f.proxy = func(out http.ResponseWriter, path string, _ int) bool {
		if path == "/leases/running" {
			close(seen)
		}
		return path == "/leases/running"
	}
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (int, error) {
		return Step(ctx, "long", func(context.Context) (int, error) { <-seen; return 1, nil })
	})
}
