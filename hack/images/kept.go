// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/agentsession-dev/operator/hack/images/internal/layer"
)

// kept is a layer in the cache. Its digests stand beside it, so that looking whether an image is unchanged does not unzip
// two hundred megabytes.
type kept struct {
	file string
	sums
}

type sums struct {
	DigestOf v1.Hash `json:"digest"`
	DiffIDOf v1.Hash `json:"diffID"`
	SizeOf   int64   `json:"size"`
}

func (k kept) Digest() (v1.Hash, error)            { return k.DigestOf, nil }
func (k kept) DiffID() (v1.Hash, error)            { return k.DiffIDOf, nil }
func (k kept) Size() (int64, error)                { return k.SizeOf, nil }
func (k kept) MediaType() (types.MediaType, error) { return types.DockerLayer, nil }
func (k kept) Compressed() (io.ReadCloser, error)  { return os.Open(k.file) }

// keep writes the layer first and its digests after it: without these, a layer does not count.
func keep(file string, t *layer.Tree) error {
	if err := replace(file, func(tmp string) error { return writeTree(t, tmp) }); err != nil {
		return err
	}
	l, err := tarball.LayerFromFile(file)
	if err != nil {
		return err
	}
	var s sums
	var errs [3]error
	s.DigestOf, errs[0] = l.Digest()
	s.DiffIDOf, errs[1] = l.DiffID()
	s.SizeOf, errs[2] = l.Size()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return replace(file+".json", func(tmp string) error { return os.WriteFile(tmp, content, 0o644) })
}

func openKept(file string) (v1.Layer, error) {
	content, err := os.ReadFile(file + ".json")
	if err != nil {
		return nil, err
	}
	k := kept{file: file}
	if err := json.Unmarshal(content, &k.sums); err != nil {
		return nil, fmt.Errorf("reading %s.json: %w", file, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() != k.SizeOf {
		return nil, fmt.Errorf("%s was cut or changed", file)
	}
	return partial.CompressedToLayer(k)
}

func writeTree(t *layer.Tree, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = t.WriteTo(f)
	return errors.Join(err, f.Close())
}
