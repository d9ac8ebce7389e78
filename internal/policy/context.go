// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Contribution is one owner's paragraph in the context snapshot.
type Contribution struct {
	Name  string
	Order int // ascending; the place in the snapshot
	Text  string
}

// The two ends and the lead line of every context snapshot. They are reserved:
// see Defuse.
const (
	SnapshotTag    = "<context-snapshot>"
	SnapshotEndTag = "</context-snapshot>"
	SnapshotLead   = "This is the current session policy. It replaces every earlier snapshot."
)

// Contributions says p in words, one contribution a part. The words hold for every
// enforcing tool: they name no tool, device or temporary path, and they ask
// the model to try rather than to refuse beforehand.
func Contributions(p Policy, workspace string) []Contribution {
	return []Contribution{
		{Name: "sandbox:policy", Order: 110, Text: sandboxText(p, workspace)},
		{Name: "approval:policy", Order: 115, Text: approvalText(p.Approval)},
	}
}

// Snapshot renders contributions as one full context snapshot. Empty ones are left
// out; with none left it is the clearing snapshot. The same contributions give
// the same bytes, in whatever order they come.
func Snapshot(contributions []Contribution) string {
	sorted := slices.SortedStableFunc(slices.Values(contributions), func(a, b Contribution) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	paragraphs := []string{SnapshotLead}
	for _, c := range sorted {
		if c.Text != "" {
			paragraphs = append(paragraphs, c.Text)
		}
	}
	if len(paragraphs) == 1 {
		paragraphs = append(paragraphs, "No policy is stated now; what earlier snapshots said no longer holds.")
	}
	return SnapshotTag + "\n" + strings.Join(paragraphs, "\n\n") + "\n" + SnapshotEndTag
}

// IsSnapshot reports whether a user-role message is a context snapshot.
func IsSnapshot(content string) bool { return strings.HasPrefix(content, SnapshotTag) }

// Defuse visibly alters what is reserved for the snapshot wherever else it occurs:
// in messages, tool output, model text. A forged snapshot would be the cheapest
// way to tell the model a false policy.
func Defuse(s string) string { return defuser.Replace(s) }

var defuser = strings.NewReplacer(
	SnapshotTag, "<context-snapshot (quoted)>",
	SnapshotEndTag, "</context-snapshot (quoted)>",
	SnapshotLead, "(quoted:) "+strings.Replace(SnapshotLead, "This is", "That was", 1),
)

func sandboxText(p Policy, workspace string) string {
	text := map[Mode]string{
		ReadOnly: "Operations that the sandbox enforces cannot modify files in this mode. " +
			"Use the available tools as usual and follow what a denial says.",
		WorkspaceWrite: fmt.Sprintf("Files under %s can be modified; some temporary areas may be writable too. "+
			"Modifications elsewhere are denied.", workspace),
		DangerFullAccess: "The file sandbox does not restrict modifications.",
	}[p.Mode]
	network := map[Network]string{
		NetworkNone: "Sandboxed processes reach no network.",
		NetworkOpen: "Sandboxed processes may use the network.",
	}[p.Network]
	return fmt.Sprintf("Sandbox mode: %s. %s %s", p.Mode, text, network)
}

func approvalText(a Approval) string {
	text := map[Approval]string{
		ApprovalNever: "What would need approval is refused without asking anyone.",
		ApprovalAsk:   "What needs approval may be put to a person; no answer is a denial.",
	}[a]
	return fmt.Sprintf("Approval policy: %s. %s", a, text)
}
