// SPDX-License-Identifier: Apache-2.0

package sandbox

import "golang.org/x/sys/unix"

const nativeArch uint32 = unix.AUDIT_ARCH_X86_64

// legacyMetadata are the older calls that newer architectures left out.
var legacyMetadata = []uint32{
	unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
}
