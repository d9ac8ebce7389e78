// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsession-dev/operator/internal/policy"
)

func TestFramesComeAsTheyWent(t *testing.T) {
	want := []Frame{
		{Hello: &Hello{Wire: 1, Container: ToolsRO, Boot: "b", Enforcement: Enforcement{Level: LevelFull, LandlockABI: 7}}},
		{Start: &Start{Call: "c", Epoch: Epoch{3, 1}, Profile: policy.Profile{Mode: policy.WorkspaceWrite}, Tool: "bash", Arguments: `{"command":"a<b"}`}},
		{Output: &Output{Call: "c", Data: []byte{0, 255, '\n'}}},
		{Terminating: &Terminating{}},
	}
	var b bytes.Buffer
	for _, f := range want {
		if err := WriteFrame(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range want {
		got, err := ReadFrame(&b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, got); diff != "" {
			t.Errorf("ReadFrame() (-want +got):\n%s", diff)
		}
	}
	if _, err := ReadFrame(&b); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want EOF", err)
	}
}

func TestReadFrameRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"no length":            {"\x00\x00", "unexpected EOF"},
		"an empty frame":       {"\x00\x00\x00\x00", "a length of 0"},
		"a huge one":           {"\xff\xff\xff\xff", "a length of 4294967295"},
		"a cut one":            {"\x00\x00\x00\x10{}", "unexpected EOF"},
		"no JSON":              {"\x00\x00\x00\x02ab", "invalid character"},
		"an unknown member":    {"\x00\x00\x00\x0b{\"sudo\":{}}", "no member"},
		"no member":            {"\x00\x00\x00\x02{}", "no member"},
		"two members":          {"\x00\x00\x00\x2b" + `{"stop":{"call":"c"},"attach":{"token":""}}`, "more than one"},
		"an unknown mode name": {"\x00\x00\x00\x23" + `{"widen":{"bound":{"mode":"root"}}}`, `unknown sandbox mode "root"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadFrame(strings.NewReader(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ReadFrame() error = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestEncodeRefusesFramesThatSayNothingOrTooMuch(t *testing.T) {
	for _, f := range []Frame{{}, {Stop: &Stop{}, Attach: &Attach{}}, {Output: &Output{Data: make([]byte, MaxFrame)}}} {
		if _, err := EncodeFrame(f); err == nil {
			t.Errorf("EncodeFrame took %.100v", f)
		}
	}
}

func TestEpochsOfALaterBootAreLater(t *testing.T) {
	if !(Epoch{1, 9}).Before(Epoch{2, 0}) || (Epoch{2, 0}).Before(Epoch{1, 9}) || (Epoch{1, 1}).Before(Epoch{1, 1}) {
		t.Error("epochs are not ordered by boot, then counter")
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, frame := range []Frame{
		{Stop: &Stop{Call: "c"}}, {Hello: &Hello{Wire: 1, Container: ToolsRO}}, {Start: &Start{Call: "c", Tool: "bash", Arguments: "{}"}},
		{Exited: &Exited{Call: "c", Cause: Finished}}, {Narrow: &Narrow{Epoch: Epoch{1, 2}, Grace: 3}}, {Output: &Output{Data: []byte("x")}}, {Terminating: &Terminating{}},
	} {
		b, err := EncodeFrame(frame)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		frame, err := ReadFrame(bytes.NewReader(in))
		if err != nil {
			if errors.Is(err, io.EOF) && len(in) > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("a cut frame of %d bytes reads as an orderly end", len(in))
			}
			return
		}
		if err := WriteFrame(io.Discard, frame); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}
