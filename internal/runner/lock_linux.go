// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/wire"
)

// retryEvery is the pause between two tries to lock or to reach the agent.
const retryEvery = 20 * time.Millisecond

// takeLock takes the lock by which the agent tells a supervisor from a command that
// runs as the same user. It is held for life: before the first call is started, and
// until everything in this container has ended with this process.
func takeLock(ctx context.Context, ctlDir string) (*os.File, error) {
	path := filepath.Join(ctlDir, wire.LockName)
	f, err := retry(ctx, func() (*os.File, error) {
		return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("opening the lock, which the agent creates: %w", err)
	}
	_, err = retry(ctx, func() (struct{}, error) {
		return struct{}{}, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("taking the lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// retry tries until it succeeds; at the end of the context it returns the last error.
func retry[T any](ctx context.Context, try func() (T, error)) (T, error) {
	for {
		v, err := try()
		if err == nil {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return v, errors.Join(context.Cause(ctx), err)
		case <-time.After(retryEvery):
		}
	}
}
