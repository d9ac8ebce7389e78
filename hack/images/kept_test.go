// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/agentsession-dev/operator/hack/images/internal/layer"
)

// What is written beside a kept layer is true, and a layer that was cut does not count.
func TestAKeptLayerIsWhatItSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.tar.gz")
	tree := layer.New()
	tree.File("a", 0o644, []byte("content"))
	if err := keep(file, tree); err != nil {
		t.Fatal(err)
	}
	l, err := openKept(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Layer(l); err != nil {
		t.Error(err)
	}
	fresh, err := inMemory(tree)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := fresh.DiffID()
	got, _ := l.DiffID()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diffID (-want +got):\n%s", diff)
	}
	if err := os.Truncate(file, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := openKept(file); err == nil {
		t.Error("openKept() took a layer that was cut")
	}
}
