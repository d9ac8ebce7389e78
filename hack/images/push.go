// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// pusher copies tarballs to a registry, with the credentials that `docker login` and its relatives leave.
type pusher struct {
	dir, repo string
	insecure  bool
	log       io.Writer
}

// push sends the tarballs of the images that are there; when they were asked for by name, all of them must be.
func (p *pusher) push(ctx context.Context, images []image, all bool) error {
	if p.dir == "" || p.repo == "" {
		return errors.New("say what goes where: --dir DIR --repo HOST/PATH")
	}
	pushed := 0
	for _, i := range images {
		file := filepath.Join(p.dir, i.name+".tar")
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && !all {
			continue
		} else if err != nil {
			return fmt.Errorf("finding the tarball of %s (make it with build): %w", i.name, err)
		}
		if err := p.pushOne(ctx, i.name, file); err != nil {
			return fmt.Errorf("pushing %s: %w", file, err)
		}
		pushed++
	}
	if pushed == 0 {
		return fmt.Errorf("no tarball of an image in %s: make them with build --out %s", p.dir, p.dir)
	}
	return nil
}

func (p *pusher) pushOne(ctx context.Context, image, file string) error {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		return fmt.Errorf("reading the tarball: %w", err)
	}
	if len(manifest) != 1 || len(manifest[0].RepoTags) != 1 {
		return errors.New("the tarball does not hold exactly one image with one name; make it anew with build")
	}
	local, err := name.NewTag(manifest[0].RepoTags[0])
	if err != nil {
		return fmt.Errorf("reading the tarball: %w", err)
	}
	options := []name.Option{name.StrictValidation}
	if p.insecure {
		options = append(options, name.Insecure)
	}
	target, err := name.NewTag(p.repo+"/"+image+":"+local.TagStr(), options...)
	if err != nil {
		return fmt.Errorf("--repo %q makes no image name: %w", p.repo, err)
	}
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		return fmt.Errorf("reading the tarball: %w", err)
	}
	if err := remote.Write(target, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("writing to the registry: %w", err)
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.log, "images: pushed %s@%s\n", target, digest)
	return nil
}
