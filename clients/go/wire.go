package holdfast

import (
	"bytes"
	"encoding/json"
	"math"
	"time"
)

// The shapes of the worker protocol. docs/worker-protocol.md describes every field.

type value = json.RawMessage

type registration struct {
	Worker   string   `json:"worker"`
	Language string   `json:"language"`
	Library  string   `json:"library"`
	Version  string   `json:"version"`
	Runtime  string   `json:"runtime"`
	Types    []string `json:"types"`
	Slots    int      `json:"slots"`
}

type registered struct {
	PresentMS float64 `json:"present_ms"`
	WaitMS    float64 `json:"wait_ms_max"`
	Limits    limits  `json:"limits"`
}

type limits struct {
	BatchBytes int `json:"batch_bytes"`
	BatchItems int `json:"batch_items"`
	ClaimSlots int `json:"claim_slots"`
	Leases     int `json:"leases"`
}

type claim struct {
	Worker  string   `json:"worker"`
	Runtime string   `json:"runtime"`
	Types   []string `json:"types"`
	Slots   int      `json:"slots"`
	LeaseMS float64  `json:"lease_ms"`
	WaitMS  float64  `json:"wait_ms"`
	Crashed []int    `json:"crashed"`
}

type claimed struct {
	Leases   []lease `json:"leases"`
	WaitedMS float64 `json:"waited_ms"`
	Drain    bool    `json:"drain"`
}

// held names a lease in a request.
type held struct {
	Run   string `json:"run"`
	Fence int64  `json:"fence"`
	Token string `json:"token"`
}

type lease struct {
	held
	Type        string            `json:"type"`
	Kind        string            `json:"kind"`
	Tenant      string            `json:"tenant"`
	LeaseMS     float64           `json:"lease_ms"`
	Attempt     int               `json:"attempt"`
	MaxAttempts int               `json:"max_attempts"`
	Crashes     int               `json:"crashes"`
	ClaimedAt   int64             `json:"claimed_at"`
	TimeoutMS   *float64          `json:"timeout_ms"`
	Params      value             `json:"params"`
	Labels      map[string]string `json:"labels"`
	Steps       []recorded        `json:"steps"`
	Unread      bool              `json:"unread"`
	Logs        int               `json:"logs"`
	Parent      string            `json:"parent"`
	Cost        float64           `json:"cost"`
	Budget      *float64          `json:"budget"`
	Left        *float64          `json:"left"`
}

// recorded is a step as the server keeps it.
type recorded struct {
	Seq      int64    `json:"seq"`
	Key      string   `json:"key"`
	Kind     string   `json:"kind"`
	Status   string   `json:"status"`
	Attempts int      `json:"attempts"`
	Output   value    `json:"output"`
	Error    *Failure `json:"error"`
	DueMS    *float64 `json:"due_ms"`
}

type load struct {
	held
	After *int64 `json:"after,omitempty"`
}

type loaded struct {
	Params value             `json:"params"`
	Labels map[string]string `json:"labels"`
	Steps  []recorded        `json:"steps"`
	More   bool              `json:"more"`
}

// item is one write of a run.
type item struct {
	Op string `json:"op"`
	held
	Seq   int64  `json:"seq"`
	Steps []step `json:"steps,omitempty"`
	effects
	Progress   value    `json:"progress,omitempty"`
	Known      *int64   `json:"known,omitempty"`
	StartedMS  *float64 `json:"started_ms,omitempty"`
	LeaseMS    float64  `json:"lease_ms"`
	Result     value    `json:"result,omitempty"`
	ContinueAs *next    `json:"continue_as,omitempty"`
	Error      *Failure `json:"error,omitempty"`
	DelayMS    float64  `json:"delay_ms,omitempty"`
	InPlace    bool     `json:"in_place,omitempty"`
	Refund     bool     `json:"refund,omitempty"`
	Before     string   `json:"before,omitempty"`
	CostMax    float64  `json:"cost_max,omitempty"`
	Shares     bool     `json:"shares,omitempty"`
}

// effects are rows that are written with a step.
type effects struct {
	Logs     []value   `json:"logs,omitempty"`
	Events   []event   `json:"events,omitempty"`
	Messages []message `json:"messages,omitempty"`
}

// step is a step to record.
type step struct {
	Key         string   `json:"key"`
	Kind        string   `json:"kind,omitempty"`
	Status      string   `json:"status,omitempty"`
	Output      value    `json:"output,omitempty"`
	Error       *Failure `json:"error,omitempty"`
	Attempts    int      `json:"attempts,omitempty"`
	MaxAttempts int      `json:"max_attempts,omitempty"`
	Cost        float64  `json:"cost,omitempty"`
	StartedMS   *float64 `json:"started_ms,omitempty"`
	Topic       string   `json:"topic,omitempty"`
	SinceNow    bool     `json:"since_now,omitempty"`
	DelayMS     *float64 `json:"delay_ms,omitempty"`
	Until       string   `json:"until,omitempty"`
	Ask         value    `json:"ask,omitempty"`
	OnTimeout   string   `json:"on_timeout,omitempty"`
	Child       *child   `json:"child,omitempty"`
}

type child struct {
	Type           string            `json:"type"`
	Params         value             `json:"params"`
	Priority       *int              `json:"priority,omitempty"`
	DelayMS        float64           `json:"delay_ms,omitempty"`
	RunAt          string            `json:"run_at,omitempty"`
	TimeoutMS      float64           `json:"timeout_ms,omitempty"`
	MaxAttempts    int               `json:"max_attempts,omitempty"`
	TTLMS          float64           `json:"ttl_ms,omitempty"`
	Budget         float64           `json:"budget,omitempty"`
	CoversChildren bool              `json:"covers_children,omitempty"`
	LimitKey       string            `json:"limit_key,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
}

type event struct {
	Name    string `json:"name"`
	Topic   string `json:"topic"`
	Payload value  `json:"payload"`
}

type message struct {
	Sink    string `json:"sink"`
	Payload value  `json:"payload"`
	Key     string `json:"key,omitempty"`
	Step    string `json:"step"`
	Number  int    `json:"number"`
}

type next struct {
	Params value `json:"params"`
}

type answers struct {
	Items []answer `json:"items"`
}

type answer struct {
	Run      string            `json:"run"`
	Seq      int64             `json:"seq"`
	Answer   string            `json:"answer"`
	Status   string            `json:"status"`
	Kept     []recorded        `json:"kept"`
	Settled  []recorded        `json:"settled"`
	Known    int64             `json:"known"`
	More     bool              `json:"more"`
	Children map[string]string `json:"children"`
	Left     *float64          `json:"left"`
	Problem  *Problem          `json:"problem"`
}

type heartbeat struct {
	Worker  string  `json:"worker"`
	LeaseMS float64 `json:"lease_ms"`
	Leases  []beat  `json:"leases"`
}

type beat struct {
	held
	StartedMS *float64 `json:"started_ms,omitempty"`
	Survived  bool     `json:"survived,omitempty"`
}

// shown are the steps of a run that people see while they run.
type shown struct {
	held
	Steps []running `json:"steps"`
}

type running struct {
	Step      string  `json:"step"`
	Attempt   int     `json:"attempt"`
	StartedMS float64 `json:"started_ms"`
}

type states struct {
	Leases []held  `json:"leases"`
	WaitMS float64 `json:"wait_ms"`
}

type news struct {
	Leases []leaseNews `json:"leases"`
	Strays []held      `json:"strays"`
}

type leaseNews struct {
	Run     string `json:"run"`
	State   string `json:"state"`
	Renewed bool   `json:"renewed"`
}

// encode returns a value as JSON; text stays as it is, without escapes for HTML.
func encode(v any) (value, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// decode reads JSON; a number in an `any` becomes a json.Number, so that no digit is lost.
func decode(text value, into any) error {
	if len(text) == 0 {
		text = value("null")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// ms returns a duration as the protocol writes it: milliseconds with three decimals.
func ms(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

func duration(ms float64) time.Duration {
	return time.Duration(ms * float64(time.Millisecond))
}
