// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
)

// Interval is a confidence interval of a proportion, or of a difference of two.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func (i Interval) String() string { return fmt.Sprintf("%.1f to %.1f %%", 100*i.Low, 100*i.High) }

// z95 is the two-sided 95 % quantile of the normal distribution.
const z95 = 1.959963984540054

// wilson is the score interval of k in n (E. B. Wilson 1927), without correction for continuity.
func wilson(k, n int) Interval {
	if n == 0 {
		return Interval{0, 1}
	}
	p, m := float64(k)/float64(n), float64(n)
	scale := 1 + z95*z95/m
	centre := (p + z95*z95/(2*m)) / scale
	half := z95 * math.Sqrt(p*(1-p)/m+z95*z95/(4*m*m)) / scale
	i := Interval{max(0, centre-half), min(1, centre+half)}
	if k == 0 { // what rounding would leave above it
		i.Low = 0
	}
	if k == n {
		i.High = 1
	}
	return i
}

// newcombe is the interval of the difference of k in n and l in m, made of the two score
// intervals (R. G. Newcombe 1998, method 10).
func newcombe(k, n, l, m int) (difference float64, i Interval) {
	if n == 0 || m == 0 {
		return 0, Interval{-1, 1}
	}
	p, q := float64(k)/float64(n), float64(l)/float64(m)
	a, b := wilson(k, n), wilson(l, m)
	d := p - q
	return d, Interval{
		max(-1, d-math.Hypot(p-a.Low, b.High-q)),
		min(1, d+math.Hypot(a.High-p, q-b.Low)),
	}
}
