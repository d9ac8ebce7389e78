// SPDX-License-Identifier: Apache-2.0

package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsession-dev/operator/internal/agent/model"
)

// Over any history that grows, each request begins with all that the one before
// it said: model, tools, system, and every block as it was.
func testGrowth(t *testing.T, w Wire) {
	p := w.New(t, Config{BaseURL: "http://127.0.0.1:1"})
	rapid.Check(t, func(t *rapid.T) {
		r := Request()
		r.Messages = nil
		r.Parameters.ReturnReasoning = rapid.Bool().Draw(t, "returnReasoning")
		var head []byte
		var blocks []json.RawMessage
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			r.Messages = Grow(t, r.Messages)
			prepared, err := p.Prepare(r)
			if err != nil {
				t.Fatal(err)
			}
			nextHead, next, err := w.Split(prepared.Body())
			if err != nil {
				t.Fatal(err)
			}
			if head != nil && !bytes.Equal(head, nextHead) {
				t.Fatalf("the head changed from\n%s\nto\n%s", head, nextHead)
			}
			if len(next) < len(blocks) {
				t.Fatalf("%d blocks after %d", len(next), len(blocks))
			}
			for i, b := range blocks {
				if !bytes.Equal(b, next[i]) {
					t.Fatalf("block %d changed from\n%s\nto\n%s", i, b, next[i])
				}
			}
			head, blocks = nextHead, next
		}
	})
}

// Grow adds what may stand between two requests of a session: an answer and its
// results unless the request failed, messages, snapshots. It ends with what a
// request may end with.
func Grow(t *rapid.T, messages []model.Message) []model.Message {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", " \n", "<a> & \u2028", "a\xffb", `{"a":1}`}))
	if len(messages) > 0 && rapid.IntRange(0, 4).Draw(t, "answered") > 0 {
		answer := model.Message{Role: model.Assistant, Content: text.Draw(t, "content"), Reasoning: text.Draw(t, "reasoning")}
		if rapid.Bool().Draw(t, "state") {
			answer.ReasoningState = json.RawMessage(rapid.SampledFrom([]string{
				fmt.Sprintf(`[{"type":"thinking","bytes":%d,"signature":"s"},{"type":"text","bytes":%d}]`, len(answer.Reasoning), len(answer.Content)),
				`[{"type":"redacted_thinking","data":"d"},{"type":"tool_use"}]`, `{"another":"provider's"}`, `[{"type":"text","bytes":-1}]`,
			}).Draw(t, "what"))
		}
		for i := range rapid.SampledFrom([]int{0, 1, 2, 25}).Draw(t, "calls") {
			answer.ToolCalls = append(answer.ToolCalls, model.ToolCall{
				ID: fmt.Sprintf("c%d_%d", len(messages), i), Name: "bash",
				Arguments: rapid.SampledFrom([]string{"", "{}", `{ "z":1, "a": "<b>" }`, "[1]", `{"cut`, "\x00"}).Draw(t, "arguments"),
			})
		}
		messages = append(messages, answer)
		for _, c := range answer.ToolCalls {
			messages = append(messages, model.Message{Role: model.Tool, ToolCallID: c.ID, Content: text.Draw(t, "result")})
		}
		if len(answer.ToolCalls) > 0 && rapid.Bool().Draw(t, "no snapshot") {
			return messages
		}
	}
	for range rapid.IntRange(1, 3).Draw(t, "messages") {
		messages = append(messages, model.Message{Role: model.User, Content: text.Draw(t, "message")})
	}
	return messages
}
