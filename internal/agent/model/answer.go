// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
)

// answerParts is an answer in the making, bounded whatever comes.
type answerParts struct {
	at        endpoint
	content   strings.Builder
	reasoning strings.Builder
	other     int // bytes kept that are neither
	calls     []*partialCall
	finish    string // in the loop's words where it knows them; empty is not finished
	usage     Usage
}

type partialCall struct {
	id, name  string
	arguments strings.Builder
}

// say takes text and returns what it adds.
func (a *answerParts) say(content, reasoning string) (Delta, error) {
	if err := a.fits(len(content) + len(reasoning)); err != nil {
		return Delta{}, err
	}
	a.content.WriteString(content)
	a.reasoning.WriteString(reasoning)
	return Delta{Content: valid(content), Reasoning: valid(reasoning)}, nil
}

func (a *answerParts) fits(more int) error {
	if a.content.Len()+a.reasoning.Len()+a.other+more > maxAnswer {
		return errorf(TooLarge, "the model's answer is longer than %d MiB: check the model, or limit its tokens", maxAnswer>>20)
	}
	return nil
}

// call opens another call.
func (a *answerParts) call() (*partialCall, error) {
	if len(a.calls) == maxCalls {
		return nil, errorf(TooLarge, "the model calls more than %d tools at once: check the model", maxCalls)
	}
	c := &partialCall{}
	a.calls = append(a.calls, c)
	return c, nil
}

// extend adds to each part of a call.
func (c *partialCall) extend(id, name, arguments string) error {
	c.id += id
	c.name += name
	if len(c.id) > maxName || len(c.name) > maxName {
		return errorf(TooLarge, "the model calls a tool with a name or ID of more than %d bytes: check the model", maxName)
	}
	if c.arguments.Len()+len(arguments) > maxArguments {
		return errorf(TooLarge, "the model calls a tool with more than %d MiB of arguments: check the model", maxArguments>>20)
	}
	c.arguments.WriteString(arguments)
	return nil
}

// answer is what came, if it is complete.
func (a *answerParts) answer() (*Answer, error) {
	if a.finish == "" {
		return nil, errorf(BrokenStream, "the model endpoint %s ended the stream before the answer was complete: try again, or check proxies in between", a.at)
	}
	out := &Answer{
		Content: valid(a.content.String()), Reasoning: valid(a.reasoning.String()),
		Finish: Finish(clean(a.finish)), Usage: a.usage,
	}
	seen := map[string]bool{}
	for i, c := range a.calls {
		id := valid(c.id)
		if id == "" || seen[id] {
			id = fmt.Sprintf("call_%d", i) // the endpoint gave none, or one twice
			for seen[id] {
				id += "_"
			}
		}
		seen[id] = true
		out.ToolCalls = append(out.ToolCalls, ToolCall{ID: id, Name: valid(c.name), Arguments: valid(c.arguments.String())})
	}
	return out, nil
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
