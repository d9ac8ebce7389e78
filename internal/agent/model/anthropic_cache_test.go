// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/model/modeltest"
)

// lookBack is how many blocks before a breakpoint the endpoint searches its cache.
const lookBack = 20

// Over any growing history: roles alternate, results stand first and right behind
// their calls, there are at most two breakpoints, and a cache that works as the
// API's does has all of the request before, whenever that one was answered.
func TestBreakpointsMeetTheCache(t *testing.T) {
	p := newAnthropic(t, model.Config{BaseURL: "http://127.0.0.1:1"})
	rapid.Check(t, func(t *rapid.T) {
		r := model.Request{Model: "m"}
		cached := map[string]bool{} // by prefix
		before := 0
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			n := len(r.Messages)
			r.Messages = modeltest.Grow(t, r.Messages)
			prepared, err := p.Prepare(r)
			if err != nil {
				t.Fatal(err)
			}
			prefixes, marks := wellFormed(t, prepared.Body())
			hit := 0
			for _, mark := range marks {
				for at := mark; at > max(mark-lookBack, 0); at-- {
					if cached[prefixes[at-1]] {
						hit = max(hit, at)
						break
					}
				}
				cached[prefixes[mark-1]] = true
			}
			answered := n > 0 && r.Messages[n].Role == model.Assistant
			if (answered || len(prefixes)-before < lookBack) && hit < before {
				t.Fatalf("%d of %d blocks that the request before carried are found in the cache, in\n%s", hit, before, prepared.Body())
			}
			before = len(prefixes)
		}
	})
}

// wellFormed checks what the API would refuse, and returns what a cache sees: the
// prefix that ends with each block, and how many blocks each breakpoint covers.
func wellFormed(t *rapid.T, body []byte) (prefixes []string, marks []int) {
	var all struct {
		Messages []struct {
			Role    string            `json:"role"`
			Content []json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatal(err)
	}
	prefix, open := "", []string{}
	for i, m := range all.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want || len(m.Content) == 0 {
			t.Fatalf("message %d is %s's with %d blocks, want the %s's", i, m.Role, len(m.Content), want)
		}
		for j, raw := range m.Content {
			var b struct {
				Type, Text, ID string
				ToolUseID      string          `json:"tool_use_id"`
				Input          map[string]any  `json:"input"`
				CacheControl   json.RawMessage `json:"cache_control"`
			}
			if err := json.Unmarshal(raw, &b); err != nil {
				t.Fatal(err)
			}
			switch {
			case b.Type == "text" && strings.TrimSpace(b.Text) == "", b.Type == "tool_use" && b.Input == nil:
				t.Fatalf("the API refuses the block %s", raw)
			case b.Type == "tool_use":
				open = append(open, b.ID)
			case len(open) > 0 && m.Role == "user" && j < len(open) && b.ToolUseID != open[j]:
				t.Fatalf("block %s stands where the result of %s belongs", raw, open[j])
			}
			if m.Role == "user" && j == len(open)-1 {
				open = open[:0]
			}
			plain, marked := bytes.CutSuffix(raw, []byte(breakpoint+"}"))
			if marked {
				plain = append(slices.Clip(plain), '}')
			}
			prefix += m.Role + string(plain)
			prefixes = append(prefixes, prefix)
			if marked {
				marks = append(marks, len(prefixes))
			} else if b.CacheControl != nil {
				t.Fatalf("a breakpoint does not stand last in %s", raw)
			}
		}
	}
	if len(open) > 0 || len(marks) == 0 || len(marks) > 2 || marks[len(marks)-1] != len(prefixes) {
		t.Fatalf("%d calls without results, breakpoints at %v of %d blocks", len(open), marks, len(prefixes))
	}
	return prefixes, marks
}
