// SPDX-License-Identifier: Apache-2.0

package doorway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A full door sends the oldest away, and not before its moment has passed.
func TestTheOldestGoesAfterAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(2)
		evicted := make([]bool, 3)
		start := time.Now()
		for i := range evicted {
			var leave func()
			leave, err := d.Enter(t.Context(), func() { evicted[i] = true; go leave() })
			if err != nil {
				t.Fatal(err)
			}
		}
		if !evicted[0] || evicted[1] || evicted[2] {
			t.Errorf("sent away: %v, want the oldest alone", evicted)
		}
		if waited := time.Since(start); waited != Patience {
			t.Errorf("sent away after %s, want %s", waited, Patience)
		}
	})
}

// Who leaves makes room at once.
func TestLeavingMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(1)
		leave, _ := d.Enter(t.Context(), func() { t.Error("nobody had to go") })
		go leave()
		start := time.Now()
		if _, err := d.Enter(t.Context(), func() {}); err != nil || time.Since(start) != 0 {
			t.Errorf("Enter() = %v after %s, want room at once", err, time.Since(start))
		}
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(1)
		_, _ = d.Enter(t.Context(), func() {})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := d.Enter(ctx, func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter() = %v, want the context's error", err)
		}
	})
}
