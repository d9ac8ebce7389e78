// SPDX-License-Identifier: Apache-2.0

//go:build mutation

package sandbox

import (
	"math"
	"strings"
)

// mutation is set by the linker, in binaries that exist to show that the conformance
// suite turns red without a layer.
var mutation string

func withoutLandlock() bool { return strings.Contains(mutation, "landlock") }
func withoutSeccomp() bool  { return strings.Contains(mutation, "seccomp") }
func withoutTest() bool     { return strings.Contains(mutation, "selftest") }

// mostABI makes a newer kernel look like an older one.
func mostABI() int {
	switch {
	case strings.Contains(mutation, "abi3"):
		return 3
	case strings.Contains(mutation, "abi5"):
		return 5
	}
	return math.MaxInt
}
