package holdfast

import (
	"context"
	"log"
	"math"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// refuse answers with a problem.
func refuse(out http.ResponseWriter, status int, code string) {
	out.Header().Set("Content-Type", "application/problem+json")
	out.WriteHeader(status)
	_, _ = out.Write([]byte(`{"code":"` + code + `","detail":"said so"}`))
}

func TestTheAnswerOfAProxyIsNoAnswer(t *testing.T) {
	f := newFake(t)
	odd := []int{404, 302, 401, 403, 400, 500, 524}
	f.proxy = func(out http.ResponseWriter, path string, number int) bool {
		if path != "/leases/batch" || number > len(odd)+2 {
			return false
		}
		switch number {
		case len(odd) + 1:
			out.Header().Set("Content-Type", "application/json")
			out.WriteHeader(400)
			_, _ = out.Write([]byte(`{"code":"bad-value"}`))
		case len(odd) + 2:
			refuse(out, 404, "no-such-route")
		default:
			out.Header().Set("Location", "/login")
			out.WriteHeader(odd[number-1])
			_, _ = out.Write([]byte("<html>"))
		}
		return true
	}
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (int, error) { return Step(ctx, "a", value1) })
	expect(t, f.said(), []string{"checkpoint 1 a", "complete 2"})
	expect(t, f.bodies["/login"], 0)
}

func TestAPlain413RefusesTheItem(t *testing.T) {
	f := newFake(t)
	f.proxy = func(out http.ResponseWriter, path string, number int) bool {
		if path != "/leases/batch" || number > 1 {
			return false
		}
		out.WriteHeader(413)
		return true
	}
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (int, error) { return Step(ctx, "a", value1) })
	expect(t, f.said(), []string{"fail 1"})
	expect(t, f.last().Error.Kind, "too_large")
}

func TestAKeyThatIsRefusedEndsTheWorker(t *testing.T) {
	f := newFake(t)
	f.proxy = func(out http.ResponseWriter, path string, _ int) bool {
		if path == "/leases/claim" {
			refuse(out, 401, "unauthenticated")
		}
		return path == "/leases/claim"
	}
	w := New(Options{URL: f.URL})
	Handle(w, "shop.order.v1", func(*Context, none) (int, error) { return 0, nil })
	if err := w.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "API key") {
		t.Fatal(err)
	}
}

func TestAValueThatCannotBeWrittenFailsTheRun(t *testing.T) {
	f := newFake(t)
	f.give(lease{})
	work(t, f, func(ctx *Context, _ none) (int, error) {
		return Step(ctx, "a", func(ctx context.Context) (int, error) { Info(ctx).AddCost(math.NaN()); return 1, nil })
	})
	expect(t, f.said(), []string{"fail 1"})
	expect(t, f.last().Error.Kind, "usage")
}

func TestARecordThatIsRefusedEndsTheRun(t *testing.T) {
	for code, wanted := range map[string]string{"unreadable": "retry sealed", "bad-value": "fail usage"} {
		f := newFake(t)
		f.proxy = func(out http.ResponseWriter, path string, _ int) bool {
			if path == "/leases/load" {
				refuse(out, 422, code)
			}
			return path == "/leases/load"
		}
		f.give(lease{Unread: true})
		stop := begin(t, f, func(*Context, none) (int, error) { return 0, nil })
		for len(f.said()) == 0 {
			time.Sleep(time.Millisecond)
		}
		expect(t, f.last().Op+" "+f.last().Error.Kind, wanted)
		expect(t, f.last().Seq, int64(1))
		if wanted == "fail usage" {
			f.ended(t)
		}
		stop()
	}
}

func TestAnAddressThatIsNoneIsSaid(t *testing.T) {
	for _, address := range []string{"localhost:8080", "http:/host", "https://", "httpx://host", "http://host:port"} {
		w := New(Options{URL: address})
		Handle(w, "shop.order.v1", func(*Context, none) (int, error) { return 0, nil })
		if err := w.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "no address of a server") {
			t.Errorf("%s: %v", address, err)
		}
	}
	w := New(Options{URL: "http://127.0.0.1:1", Key: "hf_x\n"})
	Handle(w, "shop.order.v1", func(*Context, none) (int, error) { return 0, nil })
	if err := w.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "line break") {
		t.Error(err)
	}
}

// lines keeps what is logged.
type lines struct {
	mutex sync.Mutex
	text  string
}

func (l *lines) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.text += string(text)
	return len(text), nil
}

func TestThreeFailuresInARowAreLogged(t *testing.T) {
	f := newFake(t)
	f.proxy = func(out http.ResponseWriter, _ string, number int) bool {
		if number <= 3 {
			out.WriteHeader(502)
		}
		return number <= 3
	}
	var found lines
	c := connect(Options{URL: f.URL, HTTP: http.DefaultClient, Log: log.New(&found, "", 0)})
	if err := c.ask(context.Background(), "/workers/register", none{}, nil, patience); err != nil {
		t.Fatal(err)
	}
	expect(t, strings.Count(found.text, "does not answer, trying again: status 502"), 1)
	expect(t, strings.Count(found.text, "answers again"), 1)
}

func TestAPauseThatIsAskedForHasABound(t *testing.T) {
	for ms, wanted := range map[float64]time.Duration{0: 0, -5: 0, 20: 20 * time.Millisecond, 3.6e6: askedMax, math.Inf(1): askedMax} {
		expect(t, asked(ms), wanted)
	}
}

// TestPausesDifferBetweenProcesses runs itself twice more. Numbers that begin anew in each process would be equal.
func TestPausesDifferBetweenProcesses(t *testing.T) {
	const name = "HOLDFAST_TEST_PAUSE"
	if os.Getenv(name) != "" {
		_, _ = os.Stdout.WriteString("pause " + jittered(time.Hour).String() + "\n")
		return
	}
	said := map[string]bool{}
	for n := 0; n < 2; n++ {
		other := exec.Command(os.Args[0], "-test.run=^TestPausesDifferBetweenProcesses$")
		other.Env = append(os.Environ(), name+"=1")
		out, err := other.Output()
		if err != nil || !strings.HasPrefix(string(out), "pause ") {
			t.Fatal(err, string(out))
		}
		said[strings.SplitN(string(out), "\n", 2)[0]] = true
	}
	if len(said) != 2 {
		t.Fatal("two processes wait equally long:", said)
	}
}
