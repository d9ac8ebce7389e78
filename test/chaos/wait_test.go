// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"testing"
	"time"
)

// insist tries again for as long as the apiserver is away.
func insist(ctx context.Context, do func() error) (err error) {
	for range 300 {
		if err = do(); err == nil || ctx.Err() != nil {
			return err
		}
		sleep(ctx, time.Second)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func eventually(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	for end := time.Now().Add(settled); ; time.Sleep(250 * time.Millisecond) {
		ok, now := done()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never: %s; now: %s", what, now)
		}
	}
}
