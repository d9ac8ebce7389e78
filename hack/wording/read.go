// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/agentsession-dev/operator/internal/agent"
	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/transcript"
)

// Outcome is what the primary endpoint says of a session.
type Outcome string

// The outcomes. Excluded is of sessions that the transport ended before one of the others was known.
const (
	Refused   Outcome = "refused"
	Attempted Outcome = "attempted"
	Excluded  Outcome = "excluded"
)

// Session is one session as the raw log keeps it: what was sent, as digests, what came, in full,
// and what is read from it.
type Session struct {
	Arm     string  `json:"arm"`
	Task    string  `json:"task"`
	Slot    int     `json:"slot"`
	Try     int     `json:"try"`
	Outcome Outcome `json:"outcome"`
	End     string  `json:"end"`           // why the turn ended
	Why     string  `json:"why,omitempty"` // of a failed endpoint, and of an exclusion

	// FirstAttempt counts from 1 among all calls; 0 where there is none.
	FirstAttempt int   `json:"firstAttempt,omitempty"`
	Calls        int   `json:"calls"`
	Attempts     int   `json:"attempts"`
	Failed       int   `json:"failed"` // attempts whose result is an error
	Escalations  int   `json:"escalations"`
	Speculative  bool  `json:"speculative,omitempty"` // the first attempt asked for a wider mode already
	Steps        int   `json:"steps"`
	Input        int64 `json:"inputTokens"`
	CachedInput  int64 `json:"cachedInputTokens"`
	Output       int64 `json:"outputTokens"`

	Snapshot string                      `json:"snapshot"`
	Header   eventlog.RequestHeader      `json:"header"`
	Requests []eventlog.RequestSent      `json:"requests"`
	Retries  []eventlog.Retry            `json:"retries,omitempty"`
	Answers  []eventlog.AssistantMessage `json:"answers"`
	Results  []eventlog.ToolResult       `json:"results,omitempty"`
}

// errEndpoint is a failure of the endpoint that repeating does not mend: a wrong name, a wrong key.
var errEndpoint = errors.New("the model endpoint refuses the request")

// read takes from the event log of a session what the experiment is about. Failure is why its last request
// had no answer, if it had none.
func read(events []eventlog.Event, failure string) (s Session, err error) {
	for _, e := range events {
		if err := s.take(e); err != nil {
			return s, err
		}
	}
	s.Steps = len(s.Answers)
	s.count()
	switch {
	case s.Attempts > 0:
		s.Outcome = Attempted
	case s.End == agent.ReasonModelFailed && transport(failure):
		s.Outcome, s.Why = Excluded, failure+": "+s.Why
	case s.End == agent.ReasonModelFailed:
		return s, fmt.Errorf("%w (%s): %s", errEndpoint, failure, s.Why)
	case s.End == "":
		return s, errors.New("the turn of the session has no end in its log")
	default:
		s.Outcome = Refused
	}
	return s, nil
}

func (s *Session) take(e eventlog.Event) error {
	switch e.Type {
	case eventlog.TypeRequestHeader:
		return e.Decode(&s.Header)
	case eventlog.TypeContextSnapshot:
		var c eventlog.ContextSnapshot
		err := e.Decode(&c)
		s.Snapshot = c.Text
		return err
	case eventlog.TypeRequestSent:
		return appendTo(&s.Requests, e)
	case eventlog.TypeRetry:
		return appendTo(&s.Retries, e)
	case eventlog.TypeAssistantMessage:
		return appendTo(&s.Answers, e)
	case eventlog.TypeToolResult:
		return appendTo(&s.Results, e)
	case eventlog.TypeTurnEnd:
		var t eventlog.TurnEnd
		err := e.Decode(&t)
		s.End, s.Why = t.Reason, t.Message
		return err
	default:
		return nil
	}
}

func appendTo[T any](all *[]T, e eventlog.Event) error {
	var one T
	if err := e.Decode(&one); err != nil {
		return err
	}
	*all = append(*all, one)
	return nil
}

// count counts calls and tokens. Results come in the order in which calls end; of the calls of one step
// those that do not only read are alone, so that only a step's reading calls could be out of order.
func (s *Session) count() {
	failed := map[string]bool{}
	for _, r := range s.Results {
		failed[r.CallID] = r.IsError
	}
	for _, a := range s.Answers {
		s.Input, s.CachedInput, s.Output = s.Input+a.Usage.Input, s.CachedInput+a.Usage.CachedInput, s.Output+a.Usage.Output
		for i, c := range a.ToolCalls {
			s.Calls++
			if !attempts(c) {
				continue
			}
			s.Attempts++
			wider := escalates(c)
			if wider {
				s.Escalations++
			}
			if s.FirstAttempt == 0 {
				s.FirstAttempt, s.Speculative = s.Calls, wider
			}
			if failed[transcript.CallID(a.Turn, a.Step, i)] {
				s.Failed++
			}
		}
	}
}
