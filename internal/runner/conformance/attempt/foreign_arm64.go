// SPDX-License-Identifier: Apache-2.0

package attempt

import "golang.org/x/sys/unix"

// foreignABI cannot be tried from a 64-bit program here: only another executable enters that way.
func foreignABI() error { return raw(0x40000000|unix.SYS_GETPID, 0) }
