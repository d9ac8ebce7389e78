// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/agentsession-dev/operator/hack/images/internal/debian"
	"github.com/agentsession-dev/operator/hack/images/internal/layer"
)

// bases makes the layers that do not come from the project's own source, and keeps them in the user's cache directory.
type bases struct {
	dir string
	log io.Writer
	apt *debian.Apt
}

func newBases(log io.Writer) (*bases, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("finding the cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return &bases{dir: filepath.Join(cache, "agentsession", "layers"), log: log}, nil
}

func (b *bases) layer(ctx context.Context, kind base) (v1.Layer, error) {
	switch kind {
	case withCAs:
		return b.cached(ctx, "certificates", debian.Query{Packages: []string{"ca-certificates"}}, certificates)
	case withDeb:
		return b.cached(ctx, "tools", debian.Query{Packages: tools, Dependencies: true}, debian.Root)
	default:
		t := layer.New()
		debian.Users(t)
		return inMemory(t)
	}
}

func certificates(ctx context.Context, dir string, debs []debian.Deb) (*layer.Tree, error) {
	t := layer.New()
	debian.Users(t)
	return t, debian.Certificates(ctx, t, dir, debs)
}

// recipe is part of the cache's key: raise it when the same packages are made into another tree.
const recipe = "1"

// cached makes the layer of a set of packages once per set of versions.
func (b *bases) cached(ctx context.Context, label string, q debian.Query,
	tree func(context.Context, string, []debian.Deb) (*layer.Tree, error),
) (v1.Layer, error) {
	if b.apt == nil {
		apt, err := debian.NewApt(filepath.Join(b.dir, "apt"), b.log)
		if err != nil {
			return nil, err
		}
		b.apt = apt
	}
	debs, err := b.apt.Resolve(ctx, q)
	if err != nil {
		return nil, err
	}
	file := b.file(label, debs)
	if l, err := openKept(file); err == nil {
		return l, nil
	}
	fmt.Fprintf(b.log, "images: fetching %d Debian packages for the layer %s\n", len(debs), label)
	dir := filepath.Join(b.dir, "debs-"+label)
	debs, err = b.apt.Fetch(ctx, q, debs, dir)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(b.log, "images: making the layer %s\n", label)
	t, err := tree(ctx, dir, debs)
	if err != nil {
		return nil, err
	}
	if err := b.forget(label); err != nil {
		return nil, err
	}
	file = b.file(label, debs)
	if err := keep(file, t); err != nil {
		return nil, fmt.Errorf("keeping the layer %s: %w", label, err)
	}
	return openKept(file)
}

func (b *bases) file(label string, debs []debian.Deb) string {
	return filepath.Join(b.dir, label+"-"+debian.Key(recipe, debs)+".tar.gz")
}

// forget removes the layers of former versions.
func (b *bases) forget(label string) error {
	old, err := filepath.Glob(filepath.Join(b.dir, label+"-*"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
