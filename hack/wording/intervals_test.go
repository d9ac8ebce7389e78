// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 0.00006 }

// The examples that R. G. Newcombe's papers of 1998 on one and on two proportions give.
func TestIntervalsAgainstPublishedValues(t *testing.T) {
	for _, tc := range []struct {
		k, n      int
		low, high float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}, {29, 29, 0.8830, 1}} {
		if i := wilson(tc.k, tc.n); !near(i.Low, tc.low) || !near(i.High, tc.high) {
			t.Errorf("%d of %d: %+v, want %v to %v", tc.k, tc.n, i, tc.low, tc.high)
		}
	}
	for _, tc := range []struct {
		k, n, l, m   int
		d, low, high float64
	}{
		{56, 70, 48, 80, 0.2, 0.0524, 0.3339}, {9, 10, 3, 10, 0.6, 0.1705, 0.8090}, {6, 7, 2, 7, 0.57143, 0.0582, 0.8062},
		{5, 56, 0, 29, 0.08929, -0.0381, 0.1926}, {0, 10, 0, 20, 0, -0.1611, 0.2775}, {10, 10, 0, 20, 1, 0.6791, 1},
	} {
		if d, i := newcombe(tc.k, tc.n, tc.l, tc.m); !near(d, tc.d) || !near(i.Low, tc.low) || !near(i.High, tc.high) {
			t.Errorf("%d/%d - %d/%d: %v, %+v, want %v, %v to %v", tc.k, tc.n, tc.l, tc.m, d, i, tc.d, tc.low, tc.high)
		}
	}
}

// Every k of every small n: within 0 and 1, around the rate, and mirrored.
func TestIntervalsAreInOrder(t *testing.T) {
	for n := range 40 {
		for k := range n + 1 {
			i, mirror := wilson(k, n), wilson(n-k, n)
			p := float64(k) / max(1, float64(n))
			if i.Low < 0 || i.High > 1 || i.Low > p || i.High < p || !near(i.Low, 1-mirror.High) {
				t.Errorf("%d of %d: %+v", k, n, i)
			}
		}
	}
}
