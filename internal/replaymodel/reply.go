// SPDX-License-Identifier: Apache-2.0

package replaymodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// reply is what the model says. The ids and the signature are for recorded
// conversations: a client sends them back, and then its next request is the recorded one.
type reply struct {
	ID        string     `json:"id,omitempty"`
	Reasoning string     `json:"reasoning,omitempty"`
	Signature string     `json:"signature,omitempty"`
	Text      string     `json:"text,omitempty"`
	ToolCalls []toolCall `json:"toolCalls,omitempty"`
	Finish    string     `json:"finish,omitempty"`
	RawFinish string     `json:"rawFinish,omitempty"`
}

type toolCall struct {
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name"`
	Arguments    json.RawMessage `json:"arguments,omitempty"`
	RawArguments *string         `json:"rawArguments,omitempty"`

	arguments string // what is sent
}

func (p *reply) check() error {
	if p == nil {
		return nil // the rule has faults only
	}
	if p.Text == "" && p.Reasoning == "" && len(p.ToolCalls) == 0 && p.Finish == "" && p.RawFinish == "" {
		return errors.New("the reply is empty; give it text, reasoning or toolCalls")
	}
	for i := range p.ToolCalls {
		if err := p.ToolCalls[i].prepare(); err != nil {
			return fmt.Errorf("toolCalls[%d]: %w", i, err)
		}
	}
	if p.RawFinish != "" {
		if p.Finish != "" {
			return errors.New("both finish and rawFinish; keep one")
		}
		return nil
	}
	switch p.Finish {
	case "":
		p.Finish = finishStop
		if len(p.ToolCalls) > 0 {
			p.Finish = finishToolCalls
		}
	case finishLength, finishFilter:
	case finishStop:
		if len(p.ToolCalls) > 0 {
			return errors.New("finish: stop contradicts toolCalls; use tool_calls, or leave finish out")
		}
	case finishToolCalls:
		if len(p.ToolCalls) == 0 {
			return errors.New("finish: tool_calls needs toolCalls; add some, or leave finish out")
		}
	default:
		return fmt.Errorf("finish is %q; use stop, tool_calls, length or content_filter, or rawFinish for anything else", p.Finish)
	}
	return nil
}

// prepare turns the arguments into the string that is sent: sorted keys, no
// HTML escapes, or the raw string as it stands (it may be broken on purpose).
func (c *toolCall) prepare() error {
	if strings.TrimSpace(c.Name) == "" {
		return errors.New("no name; name the tool to call")
	}
	if c.RawArguments != nil {
		if c.Arguments != nil {
			return errors.New("both arguments and rawArguments; keep one")
		}
		c.arguments = *c.RawArguments
		return nil
	}
	if c.Arguments == nil {
		c.Arguments = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(c.Arguments))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil || object == nil {
		return errors.New("arguments must be a mapping; use rawArguments for anything else")
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return fmt.Errorf("encoding arguments: %w", err)
	}
	c.arguments = strings.TrimSuffix(out.String(), "\n")
	return nil
}
