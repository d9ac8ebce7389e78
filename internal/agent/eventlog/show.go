// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ShowOptions choose what Show prints.
type ShowOptions struct {
	// From is the first seq shown.
	From uint64
	// Width cuts long texts to about so many characters; 0 is not at all.
	Width int
}

// Show prints the log for people: a line or a small block for each event.
func Show(w io.Writer, dir string, o ShowOptions) error {
	out := bufio.NewWriter(w)
	for e, err := range Read(dir) {
		if err != nil {
			out.Flush()
			return err
		}
		if e.Seq < o.From {
			continue
		}
		if _, err := out.WriteString(o.render(e)); err != nil {
			return fmt.Errorf("showing the log: %w", err)
		}
	}
	return out.Flush()
}

// summaries say for each type what stands on its line and what below it. Types
// without one are shown as their JSON.
var summaries = map[Type]func(Event) (line, block string, err error){
	TypeSessionStart: summary(func(d SessionStart) (string, string) {
		return strings.Trim(d.Namespace+"/"+d.Name, "/") + " uid " + d.SessionUID, ""
	}),
	TypeBoot: summary(func(d Boot) (string, string) {
		line := fmt.Sprintf("boot %d in pod %s", d.Boot, d.PodUID)
		if d.Cut != nil {
			line += fmt.Sprintf(", torn tail of %d bytes cut", d.Cut.Bytes)
		}
		return line, ""
	}),
	TypePolicyApplied: summary(func(d PolicyApplied) (string, string) {
		return fmt.Sprintf("%.12s by %s, epoch %d, %d killed", d.Digest, d.Cause, d.Epoch, d.Killed), d.Policy
	}),
	TypeMessageReceived: summary(func(d MessageReceived) (string, string) {
		return d.UID + from(d.Author), d.Content
	}),
	TypeUserMessage: summary(func(d UserMessage) (string, string) {
		return fmt.Sprintf("turn %d%s", d.Turn, from(d.Author)), d.Content
	}),
	TypeContextSnapshot: summary(func(d ContextSnapshot) (string, string) {
		return fmt.Sprintf("of the policy in event %d", d.PolicySeq), d.Text
	}),
	TypeTurnStart: summary(func(d TurnStart) (string, string) { return fmt.Sprintf("turn %d", d.Turn), "" }),
	TypeStepStart: summary(func(d StepStart) (string, string) { return fmt.Sprintf("step %d.%d", d.Turn, d.Step), "" }),
	TypeRequestHeader: summary(func(d RequestHeader) (string, string) {
		return fmt.Sprintf("%s, model %s, system text %d bytes, tools %d bytes", d.Provider, d.Model, len(d.System), len(d.Tools)), ""
	}),
	TypeRequestSent: summary(func(d RequestSent) (string, string) {
		return fmt.Sprintf("step %d.%d attempt %d, %d bytes, %.12s, policy %d, snapshot %d",
			d.Turn, d.Step, d.Attempt, d.Bytes, d.Digest, d.PolicySeq, d.SnapshotSeq), ""
	}),
	TypeAssistantMessage: summary(func(d AssistantMessage) (string, string) {
		return fmt.Sprintf("step %d.%d %s, %d calls, tokens %d + %d cached in, %d out", d.Turn, d.Step, d.Finish,
			len(d.ToolCalls), d.Usage.Input, d.Usage.CachedInput, d.Usage.Output), d.Content
	}),
	TypeToolCall: summary(func(d ToolCall) (string, string) { return d.CallID + " " + d.Name, d.Arguments }),
	TypeToolStart: summary(func(d ToolStart) (string, string) {
		return fmt.Sprintf("%s epoch %d %s", d.CallID, d.Epoch, d.Profile), ""
	}),
	TypeToolResult: summary(func(d ToolResult) (string, string) {
		line := d.CallID
		if d.IsError {
			line += " error"
		}
		if d.Outcome != "" {
			line += " " + d.Outcome
		}
		if len(d.Denial) > 0 {
			line += " denied " + string(d.Denial)
		}
		return line, d.Text
	}),
	TypeRetry: summary(func(d Retry) (string, string) {
		return fmt.Sprintf("step %d.%d attempt %d: %s, again in %d ms", d.Turn, d.Step, d.Attempt, d.Reason, d.DelayMillis), d.Message
	}),
	TypeLeaseExpired: summary(func(d LeaseExpired) (string, string) {
		return fmt.Sprintf("epoch %d, %d killed", d.Epoch, d.Killed), ""
	}),
	TypeLeaseRenewed: summary(func(d LeaseRenewed) (string, string) { return fmt.Sprintf("epoch %d", d.Epoch), "" }),
	TypeApprovalRequested: summary(func(d ApprovalRequested) (string, string) {
		return fmt.Sprintf("%s for %s: %s", d.ID, d.CallID, d.Permissions), strings.TrimPrefix(d.Justification+"\n"+d.Preview, "\n")
	}),
	TypeApprovalDecided: summary(func(d ApprovalDecided) (string, string) {
		return d.ID + " " + d.Decision + from(d.By), d.Message
	}),
	TypeGrantUsed: summary(func(d GrantUsed) (string, string) {
		return fmt.Sprintf("%s by %s epoch %d %s", d.ID, d.CallID, d.Epoch, d.Profile), ""
	}),
	TypeCompaction: summary(func(d Compaction) (string, string) {
		return fmt.Sprintf("up to event %d (%s), %d results cut", d.UpTo, d.Cause, len(d.Cut)), d.Summary
	}),
	TypeStepEnd:    summary(func(d StepEnd) (string, string) { return fmt.Sprintf("step %d.%d", d.Turn, d.Step), "" }),
	TypeTurnEnd:    summary(func(d TurnEnd) (string, string) { return fmt.Sprintf("turn %d: %s", d.Turn, d.Reason), d.Message }),
	TypeSessionEnd: summary(func(d SessionEnd) (string, string) { return d.Reason, d.Message }),
}

func summary[T any](say func(T) (line, block string)) func(Event) (string, string, error) {
	return func(e Event) (string, string, error) {
		var d T
		if err := e.Decode(&d); err != nil {
			return "", "", err
		}
		line, block := say(d)
		return line, block, nil
	}
}

func from(author string) string {
	if author == "" {
		return ""
	}
	return " from " + author
}

func (o ShowOptions) render(e Event) string {
	line, block := string(e.Data), ""
	if say, known := summaries[e.Type]; known {
		// A payload that a newer version changed beyond recognition stays JSON.
		if l, b, err := say(e); err == nil {
			line, block = l, b
		}
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%6d  %s  %-18s %s\n", e.Seq, e.Time.Format("2006-01-02 15:04:05.000"), e.Type, strings.ReplaceAll(o.clean(line), "\n", " "))
	for text := range strings.Lines(o.clean(block)) {
		fmt.Fprintf(&s, "        | %s\n", strings.TrimRight(text, "\n"))
	}
	return s.String()
}

// clean cuts a text and takes out what could steer a terminal: most of it was
// written by a model or by a command.
func (o ShowOptions) clean(text string) string {
	if n := utf8.RuneCountInString(text); o.Width > 0 && n > o.Width {
		text = fmt.Sprintf("%s… (%d characters more)", string([]rune(text)[:o.Width]), n-o.Width)
	}
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
