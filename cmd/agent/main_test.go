// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The toolbox is replaced as a whole, whatever is there and however often.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "in-the-image"), filepath.Join(dir, "toolbox")
	for _, content := range []string{"first", "second", "second"} {
		if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{"install", "--from", from, "--to", to}, nil, nil); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(to)
		if err != nil || string(got) != content {
			t.Fatalf("installed %q, %v; want %q", got, err, content)
		}
	}
	info, err := os.Stat(to)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v; want 0755", info.Mode(), err)
	}
	if err := run([]string{"install", "--from", filepath.Join(dir, "none"), "--to", to}, nil, nil); err == nil {
		t.Error("a program that does not exist was installed")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("it leaves %v behind, %v; want both programs and the private directory", entries, err)
	}
	info, err = os.Stat(filepath.Join(dir, "private"))
	if err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("the private directory: %v, %v; want nobody else to enter it", info.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "private", "termination-log")); err != nil {
		t.Errorf("what the kubelet mounts over is not there: %v", err)
	}
}

// Wrong command lines say what is wrong.
func TestWrongCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"":      "a command is missing",
		"dance": `no command "dance"`,
		"run":   "--session-uid",
		"run --containers kitchen --session-uid u --incarnation i --ca-hash h": "neither tools-ro nor tools-rw",
		"run extra --session-uid u":  "flags are missing",
		"install extra":              "not a flag",
		"log":                        "verify, show or export",
		"log verify":                 "name the log's directory",
		"log burn /nowhere":          `no command log "burn"`,
		"log verify /nowhere/at/all": "/nowhere/at/all",
	} {
		var out bytes.Buffer
		err := run(strings.Fields(args), &out, &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("agent %s: %v, want it to say %q", args, err, want)
		}
	}
	var out bytes.Buffer
	if err := run([]string{"version"}, &out, nil); err != nil || out.Len() < 2 {
		t.Errorf("agent version: %q, %v", out.String(), err)
	}
}
