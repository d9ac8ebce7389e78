// SPDX-License-Identifier: Apache-2.0

package call

import "golang.org/x/sys/unix"

// Waiter is the Reaper of a program that is not the first of its container.
type Waiter struct{}

// Start implements Reaper.
func (Waiter) Start(fork func() (int, error)) (<-chan struct{}, error) {
	pid, err := fork()
	if err != nil {
		return nil, err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
	return gone, nil
}
