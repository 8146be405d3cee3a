package holdfastsql

import (
	"testing"
	"time"
)

func TestTheDelayIsTheSquareOfTheAttemptInMinutes(t *testing.T) {
	for n, minutes := range map[int]time.Duration{0: 1, 1: 1, 2: 4, 3: 9, 10: 100} {
		for tries := 0; tries < 100; tries++ {
			least, most := minutes*time.Minute, minutes*66*time.Second
			if found := Quadratic(n); found < least || found > most {
				t.Fatalf("after failure %d: %v", n, found)
			}
		}
	}
}

func TestAPrefixIsNoPattern(t *testing.T) {
	w := New(Config{})
	w.Handle("a_b.", nil)
	w.Handle("shop.order.v1", nil)
	for n, wanted := range []string{`a\_b.%`, "shop.order.v1"} {
		if found := w.handlers[n].pattern; found != wanted {
			t.Errorf("found %s, wanted %s", found, wanted)
		}
	}
	for typ, n := range map[string]int{"a_b.c.v1": 0, "axb.c.v1": -1, "shop.order.v1": 1, "shop.order.v10": -1} {
		found := -1
		for at, one := range w.handlers {
			if one.matches.MatchString(typ) {
				found = at
			}
		}
		if found != n {
			t.Errorf("%s is taken by %d", typ, found)
		}
	}
}
