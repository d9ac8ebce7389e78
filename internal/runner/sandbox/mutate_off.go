// SPDX-License-Identifier: Apache-2.0

//go:build !mutation

package sandbox

import "math"

// The layers cannot be left out of this build.
func withoutLandlock() bool { return false }
func withoutSeccomp() bool  { return false }
func withoutTest() bool     { return false }

func mostABI() int { return math.MaxInt }
