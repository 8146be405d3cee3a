// Command order is a worker for orders: it charges, asks a person about large orders, ships each parcel as a child run,
// and waits for the carrier.
//
//	HOLDFAST_URL=http://127.0.0.1:8080 go run ./examples/order
//	holdfast start shop.order.v1 '{"id": 42, "cents": 1999, "parcels": ["books"]}'
//	holdfast emit delivered:42 '{"at": "the door"}'
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"holdfast.internal/holdfast"
)

type order struct {
	ID      int      `json:"id"`
	Cents   int      `json:"cents"`
	Parcels []string `json:"parcels"`
}

type receipt struct {
	Number string `json:"number"`
	Cents  int    `json:"cents"`
}

type delivery struct {
	At string `json:"at"`
}

const large = 100_000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	worker := holdfast.New(holdfast.Options{})
	holdfast.Handle(worker, "shop.order.v1", fulfil)
	holdfast.Handle(worker, "shop.ship.v1", ship)
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// fulfil is the workflow of an order.
func fulfil(ctx *holdfast.Context, o order) (string, error) {
	if o.Cents > large {
		decision, err := ctx.Approval("large-order", fmt.Sprintf("Accept order %d of %d cents?", o.ID, o.Cents), o)
		if err != nil {
			return "", err
		}
		if !decision.Approved {
			return "refused by " + decision.By, nil
		}
	}
	paid, err := holdfast.Step(ctx, "charge", func(ctx context.Context) (receipt, error) { return charge(ctx, o) })
	if err != nil {
		return "", err
	}
	for _, parcel := range o.Parcels {
		if _, err := holdfast.Call[string](ctx, "shop.ship.v1", parcel); err != nil {
			return "", err
		}
	}
	ctx.Sleep(100 * time.Millisecond)
	topic := fmt.Sprintf("delivered:%d", o.ID)
	delivered, err := holdfast.AwaitEvent[delivery](ctx, topic, holdfast.Timeout(24*time.Hour))
	if errors.Is(err, holdfast.ErrTimeout) {
		return "lost on its way", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, delivered at %s", paid.Number, delivered.At), nil
}

// charge would call a payment provider. The provider gets the idempotency key, so that a repeated call charges once.
func charge(ctx context.Context, o order) (receipt, error) {
	if o.Cents <= 0 {
		return receipt{}, holdfast.Fatal(errors.New("an order costs something"))
	}
	log.Printf("charge %d cents, idempotency key %s", o.Cents, holdfast.Info(ctx).IdempotencyKey)
	return receipt{Number: fmt.Sprintf("receipt-%d", o.ID), Cents: o.Cents}, nil
}

// ship is the workflow of one parcel.
func ship(ctx *holdfast.Context, parcel string) (string, error) {
	return holdfast.Step(ctx, "label", func(context.Context) (string, error) { return "label for " + parcel, nil })
}
