// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
)

// node is a containerd that takes images.
type node struct {
	client      *containerd.Client
	snapshotter string
}

func (n node) loadFile(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening the image archive: %w", err)
	}
	defer f.Close()
	if err := n.load(ctx, f); err != nil {
		return fmt.Errorf("loading %s: %w (it must be an OCI or docker-archive tarball)", name, err)
	}
	return nil
}

// load imports an archive and unpacks each image in it, so that the first
// pod with it does not pay for that. An archive that names no image would
// import without being usable: that is an error.
func (n node) load(ctx context.Context, archive io.Reader) error {
	ctx, done, err := n.client.WithLease(ctx) // keeps the garbage collector off what is half imported
	if err != nil {
		return err
	}
	defer done(context.WithoutCancel(ctx))
	imported, err := n.client.Import(ctx, archive, containerd.WithImportPlatform(platforms.Default()))
	if err != nil {
		return err
	}
	if len(imported) == 0 {
		return errors.New("no image with a name in it: set org.opencontainers.image.ref.name, io.containerd.image.name or RepoTags")
	}
	for _, img := range imported {
		if err := n.unpack(ctx, img); err != nil {
			return fmt.Errorf("unpacking %s: %w", img.Name, err)
		}
		fmt.Printf("loaded %s %s\n", img.Name, img.Target.Digest)
	}
	return nil
}

func (n node) unpack(ctx context.Context, img images.Image) error {
	return containerd.NewImageWithPlatform(n.client, img, platforms.Default()).Unpack(ctx, n.snapshotter)
}

// buffered gives what write writes, as a reader.
func buffered(write func(io.Writer) error) (io.Reader, error) {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return nil, err
	}
	return &b, nil
}
