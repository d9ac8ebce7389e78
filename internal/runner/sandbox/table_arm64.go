// SPDX-License-Identifier: Apache-2.0

package sandbox

import "golang.org/x/sys/unix"

const nativeArch uint32 = unix.AUDIT_ARCH_AARCH64

// legacyMetadata is empty: this architecture never had those calls.
var legacyMetadata []uint32
