// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// The same program makes the same image: importing it again changes nothing.
func TestPauseIsReproducible(t *testing.T) {
	digest := func(program string) string {
		img, err := pauseOf([]byte(program))
		if err != nil {
			t.Fatal(err)
		}
		d, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	if digest("a") != digest("a") {
		t.Error("one program makes two images")
	}
	if digest("a") == digest("b") {
		t.Error("two programs make one image")
	}
}
