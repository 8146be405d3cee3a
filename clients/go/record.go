package holdfast

import (
	"errors"
	"fmt"
	"strconv"
)

// find returns the recorded step, or nil if there is none.
func (r *execution) find(key, kind string) *recorded {
	found := r.record[key]
	if found != nil && found.Kind != kind {
		r.fail("drift", fmt.Sprintf("step %q was recorded as a %s, but the code now asks for a %s: "+
			"give the new step another name, or rewind the run", key, found.Kind, kind))
		r.exit()
	}
	if found == nil && len(r.record) >= stepsMax {
		r.fail("history", fmt.Sprintf("the run has recorded %d steps, its limit: continue with ContinueAs", stepsMax))
		r.exit()
	}
	return found
}

// wrote takes a step that was committed here into the record.
func (r *execution) wrote(one step) {
	set(&one.Kind, "task")
	set(&one.Status, "succeeded")
	r.record[one.Key] = &recorded{Key: one.Key, Kind: one.Kind, Status: one.Status, Attempts: one.Attempts,
		Output: one.Output, Error: one.Error}
}

// learn takes steps that the server has told.
func (r *execution) learn(steps []recorded) {
	for n := range steps {
		one := &steps[n]
		r.record[one.Key] = one
		if one.Seq > r.known {
			r.known = one.Seq
		}
		if one.Kind == "now" && one.microseconds() > r.latest {
			r.latest = one.microseconds()
		}
	}
}

// microseconds returns a recorded time.
func (s *recorded) microseconds() int64 {
	at, _ := strconv.ParseInt(string(s.Output), 10, 64)
	return at
}

// load reads the record, or what is newer than after. It returns false if the run cannot go on here.
func (r *execution) load(after *int64) bool {
	for {
		var page loaded
		ask := load{held: r.lease.held, After: after}
		if err := r.worker.connection.ask(r.alive, "/leases/load", ask, &page, patience); err != nil {
			r.unread(err)
			return false
		}
		if after == nil {
			r.lease.Params, r.lease.Labels = page.Params, page.Labels
		}
		r.learn(page.Steps)
		if !page.More || len(page.Steps) == 0 {
			return true
		}
		after = &page.Steps[len(page.Steps)-1].Seq
	}
}

// unread ends a run whose record was not given.
func (r *execution) unread(err error) {
	r.over = true
	var problem *Problem
	if refused := forbids(err); refused != nil {
		r.worker.stop(refused)
	} else if errors.As(err, &problem) {
		r.worker.options.Log.Printf("holdfast: run %s cannot be read: %v", r.lease.Run, problem)
		r.refused(problem, false)
	}
}
