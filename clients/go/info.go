package holdfast

import (
	"context"
	"fmt"
	"strconv"
)

// StepInfo describes the try of a step, for its function.
type StepInfo struct {
	Run            string
	Key            string
	IdempotencyKey string // for the outside world: the same at every try, in every process
	Attempt        int
	cost           float64
	effects        effects
	chance         *generator
}

type infoKey struct{}

// Info returns what a step's function may want to know and to say. ctx is the one that the function was given. What it
// says is written with the outcome of the try; a try that fails writes only its log rows and its cost.
func Info(ctx context.Context) *StepInfo {
	if found, ok := ctx.Value(infoKey{}).(*StepInfo); ok {
		return found
	}
	return &StepInfo{}
}

// AddCost adds to the cost of the step.
func (s *StepInfo) AddCost(amount float64) { s.cost += amount }

// Log adds a row to the trail.
func (s *StepInfo) Log(message string, fields map[string]any) {
	s.effects.log(message, fields, "step", s.Key)
}

// Emit sends an event.
func (s *StepInfo) Emit(topic string, payload any) error {
	if problem := unkept("a topic", topic, topicMax); problem != nil {
		return problem
	}
	text, err := encoded(payload, "the payload of event "+strconv.Quote(topic))
	if err == nil {
		name := fmt.Sprintf("%s:emit%d", s.Key, len(s.effects.Events)+1)
		s.effects.Events = append(s.effects.Events, event{name, topic, text})
	}
	return err
}

// Send sends a message to a sink; see [Context.Send].
func (s *StepInfo) Send(sink string, payload any, order string) error {
	text, err := encoded(payload, "the message to "+strconv.Quote(sink))
	if err == nil {
		s.effects.Messages = append(s.effects.Messages, message{sink, text, order, s.Key, len(s.effects.Messages) + 1})
	}
	return err
}

// Random returns a number in [0, 1): the same numbers at every try.
func (s *StepInfo) Random() float64 { return s.drawn().number() }

// UUID returns a random UUID: the same ones at every try.
func (s *StepInfo) UUID() string { return s.drawn().uuid() }

func (s *StepInfo) drawn() *generator {
	if s.chance == nil {
		s.chance = newGenerator(s.IdempotencyKey)
	}
	return s.chance
}

// with returns these effects and then others.
func (e effects) with(others effects) effects {
	return effects{append(e.Logs, others.Logs...), append(e.Events, others.Events...), append(e.Messages, others.Messages...)}
}
