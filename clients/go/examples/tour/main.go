// Command tour is a worker with one small workflow for each thing that the order example does not need.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"holdfast.internal/holdfast"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	slots, _ := strconv.Atoi(os.Getenv("HOLDFAST_SLOTS")) // 50 if it is not set
	worker := holdfast.New(holdfast.Options{Slots: slots, Lease: 5 * time.Second, Prefixes: []string{"tour."}})
	holdfast.Handle(worker, "tour.squares.v1", squares)
	holdfast.Handle(worker, "tour.countdown.v1", countdown)
	holdfast.Handle(worker, "tour.starter.v1", starter)
	holdfast.Handle(worker, "tour.notes.v1", notes, holdfast.Backoff(func(int) time.Duration { return 10 * time.Millisecond }))
	holdfast.Handle(worker, "tour.slow.v1", slow)
	holdfast.Handle(worker, "tour.steps.v1", steps)
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// squares runs a step for each number, three at once.
func squares(ctx *holdfast.Context, numbers []int) ([]int, error) {
	return holdfast.Map(ctx, "square", numbers, 3, func(_ context.Context, n int) (int, error) { return n * n, nil })
}

// countdown is a chain of runs: each one records little, and starts the next.
func countdown(ctx *holdfast.Context, left int) (string, error) {
	if left == 0 {
		return "lift-off", nil
	}
	return "", ctx.ContinueAs(left - 1)
}

// starter starts a child and does not wait for it. It gives the child's number as a label.
func starter(ctx *holdfast.Context, number int) (string, error) {
	labels := map[string]string{"number": fmt.Sprint(number)}
	return ctx.Start("tour.squares.v1", []int{number}, holdfast.With(holdfast.Child{Labels: labels}))
}

// notes writes to the trail, shows its progress, emits an event and fails once.
func notes(ctx *holdfast.Context, topic string) (time.Time, error) {
	now := ctx.Now()
	ctx.Log("begun", map[string]any{"topic": topic})
	ctx.Progress(1, 2, "half of it")
	if err := ctx.Emit(topic, map[string]any{"at": now}); err != nil {
		return now, err
	}
	tries, err := holdfast.Step(ctx, "try", func(ctx context.Context) (int, error) {
		holdfast.Info(ctx).AddCost(0.25)
		if holdfast.Info(ctx).Attempt == 1 {
			panic("the first try always fails")
		}
		return holdfast.Info(ctx).Attempt, nil
	}, holdfast.Backoff(func(int) time.Duration { return 0 }))
	if err != nil || tries != 2 {
		return now, fmt.Errorf("%d tries: %w", tries, err)
	}
	return now, nil
}

// slow has a step with a time limit.
func slow(ctx *holdfast.Context, _ any) (string, error) {
	return holdfast.Step(ctx, "wait", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}, holdfast.Timeout(50*time.Millisecond), holdfast.Attempts(1))
}

// steps adds up five steps, one after the other: bench/over_http/languages.py measures it.
func steps(ctx *holdfast.Context, n int) (sum int, err error) {
	for one := 0; one < 5 && err == nil; one++ {
		sum, err = holdfast.Step(ctx, "add", func(context.Context) (int, error) { return sum + n, nil })
	}
	return sum, err
}
