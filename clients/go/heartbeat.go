package holdfast

import (
	"context"
	"sort"
	"time"
)

const (
	watched    = 5 * time.Second // runs that have begun meanwhile are asked for after this time
	shownAfter = 2 * time.Second // steps that take longer are shown
	shownMax   = 20              // steps of one run
)

// heartbeats keeps the leases of all runs. It has a goroutine of its own, which no step can hold up.
func (w *Worker) heartbeats(ctx context.Context) {
	every := w.options.Lease / 3
	for pause, again := every, retryMin; ; {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-w.beat:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if lost, err := w.renew(ctx); err == nil {
			pause, again = every, retryMin
			go w.release(ctx, lost)
		} else if refused := forbids(err); refused != nil {
			w.stop(refused)
			return
		} else {
			pause = again
			again = longer(again)
		}
	}
}

// renew sends one heartbeat, and tells the runs what the server says about them.
func (w *Worker) renew(ctx context.Context) ([]held, error) {
	body := heartbeat{Worker: w.options.Name, LeaseMS: ms(w.options.Lease), Leases: []beat{}}
	runs, sent := w.all(), time.Now()
	for _, one := range runs {
		body.Leases = append(body.Leases, one.beat(sent))
	}
	w.mutex.Lock()
	claims := w.claims
	w.mutex.Unlock()
	var found news
	wait := w.options.Lease / 3
	if wait > patience {
		wait = patience
	}
	if _, err := w.connection.once(ctx, "/leases/heartbeat", body, &found, wait); err != nil {
		return nil, err
	}
	for n, one := range found.Leases {
		if n < len(runs) && runs[n].lease.Run == one.Run {
			runs[n].hear(one.State, one.Renewed, sent)
		}
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	close(w.beaten)
	w.beaten = make(chan struct{})
	return w.lostRuns(found.Strays, claims), nil
}

// lostRuns returns the strays to give back: runs of claims whose answers were lost. A stray may still be in the answer to
// a claim that was open when the stray was first named. If that claim is open at the next heartbeat too, it is given up.
func (w *Worker) lostRuns(strays []held, claims claimCount) (lost []held) {
	named := map[held]int{}
	for _, one := range strays {
		if mine := w.held[one.Run]; mine != nil && mine.lease.Fence == one.Fence {
			continue
		}
		begun, known := w.strays[one]
		if !known {
			begun = claims.begun
		} else if claims.ended >= begun {
			lost = append(lost, one)
		} else {
			w.abort()
			w.beatSoon()
		}
		named[one] = begun
	}
	w.strays = named
	return lost
}

// release gives runs back. One that is refused is named by the next heartbeat again, unless it was lost.
func (w *Worker) release(ctx context.Context, lost []held) {
	for _, one := range lost {
		found, err := w.batches.send(ctx, item{Op: "release", held: one, Seq: 1, LeaseMS: ms(w.options.Lease)})
		if err == nil && found.Problem != nil && found.Problem.Code != "lease-lost" {
			w.options.Log.Printf("holdfast: run %s is not given back: %v", one.Run, found.Problem)
		}
	}
}

// watch asks for the states of runs that take longer, so that a cancel arrives at once and not with the next heartbeat.
func (w *Worker) watch(ctx context.Context) {
	for sleep(ctx, time.Second) {
		body := states{WaitMS: ms(watched)}
		var runs []*execution
		for _, one := range w.all() {
			if time.Since(one.begun) > time.Second && one.ctx.Err() == nil {
				runs, body.Leases = append(runs, one), append(body.Leases, one.lease.held)
			}
		}
		if len(runs) == 0 {
			continue
		}
		var found news
		if _, err := w.connection.once(ctx, "/leases/states", body, &found, watched+patience); err == nil {
			for n, one := range found.Leases {
				if n < len(runs) && runs[n].lease.Run == one.Run {
					runs[n].hear(one.State, false, time.Time{})
				}
			}
		}
	}
}

// show lets people see the steps that have run for two seconds or longer.
func (w *Worker) show(ctx context.Context) {
	before := map[held]int{}
	for sleep(ctx, shownAfter) {
		now, runs := map[held]int{}, []shown{}
		for _, one := range w.all() {
			steps := one.longSteps()
			if now[one.lease.held] = len(steps); len(steps) > before[one.lease.held] && len(runs) < w.batches.limits.BatchItems {
				runs = append(runs, shown{one.lease.held, steps})
			}
		}
		before = now
		if len(runs) > 0 {
			body := map[string]any{"worker": w.options.Name, "runs": runs}
			_, _ = w.connection.once(ctx, "/leases/running", body, nil, patience)
		}
	}
}

// longSteps returns the steps of a run that people want to see, at most as many as the server shows.
func (r *execution) longSteps() (found []running) {
	r.trying.Range(func(_, one any) bool {
		if step := one.(running); ms(r.now())-step.StartedMS >= ms(shownAfter) {
			found = append(found, step)
		}
		return len(found) < shownMax
	})
	sort.Slice(found, func(a, b int) bool { return found[a].StartedMS < found[b].StartedMS })
	return found
}

// confirm waits until the lease of a run is certain: its heartbeats may not have come through.
func (w *Worker) confirm(r *execution) {
	for r.overdue() && r.ctx.Err() == nil {
		w.mutex.Lock()
		beaten := w.beaten
		w.mutex.Unlock()
		w.beatSoon()
		select {
		case <-beaten:
		case <-r.ctx.Done():
		}
		if r.overdue() { // its row was busy
			sleep(r.ctx, retryMin)
		}
	}
}

// beatSoon asks for a heartbeat before its time.
func (w *Worker) beatSoon() {
	select {
	case w.beat <- struct{}{}:
	default:
	}
}
