// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

type countingTransport struct{ n int }

func (c *countingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	c.n++
	return nil, errors.New("sent")
}

// Whatever stands between Prepare and the wire: other bytes than the prepared
// ones do not leave, and the right ones leave once.
func TestOnlyThePreparedBytesLeave(t *testing.T) {
	for name, body := range map[string]string{
		"one byte changed": `{"a":2}`, "a byte more": `{"a":1}` + " ", "cut": `{"a":`, "nothing": "",
	} {
		next := &countingTransport{}
		x := &exchange{next: next, prepared: newPrepared("m", []byte(`{"a":1}`)), idle: newWatchdog(time.Hour, nil)}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "nothing was sent") || next.n != 0 {
			t.Errorf("%s: RoundTrip() = %v, %d requests left", name, err, next.n)
		}
		x.idle.stop()
	}
	next := &countingTransport{}
	x := &exchange{next: next, prepared: newPrepared("m", []byte(`{"a":1}`)), idle: newWatchdog(time.Hour, nil)}
	defer x.idle.stop()
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/", strings.NewReader(`{"a":1}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.RoundTrip(req); err == nil {
			t.Error("no error")
		}
	}
	if next.n != 1 {
		t.Errorf("%d requests left, want 1", next.n)
	}
}
