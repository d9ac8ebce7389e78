// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What only reads runs together, ten at a time; everything else runs alone; nothing is left out or moved.
func TestOnlySoManyCallsRunAtOnce(t *testing.T) {
	var calls []*call
	add := func(n int, name, arguments string) {
		for range n {
			calls = append(calls, &call{id: fmt.Sprint(len(calls)), name: name, arguments: arguments})
		}
	}
	add(23, "read", `{"path":"f"}`)
	add(2, "bash", `{"command":"ls"}`)
	add(1, "read", `{"path":`)
	add(3, "read", `{"path":"f"}`)
	var sizes []int
	next := 0
	for _, group := range groups(decodeCalls(calls)) {
		sizes = append(sizes, len(group))
		for _, w := range group {
			if w.id != fmt.Sprint(next) {
				t.Errorf("call %s stands in the place of %d", w.id, next)
			}
			next++
		}
	}
	if diff := cmp.Diff([]int{10, 10, 3, 1, 1, 1, 3}, sizes); diff != "" || next != len(calls) {
		t.Errorf("%d of %d calls, in groups of (-want +got):\n%s", next, len(calls), diff)
	}
}
