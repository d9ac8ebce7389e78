// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/agentsession-dev/operator/hack/images/internal/layer"
)

// builder writes tarballs of images.
type builder struct {
	out, tag, repo, root string
	log                  io.Writer
}

func (b *builder) build(ctx context.Context, images []image) error {
	if err := b.complete(); err != nil {
		return err
	}
	programs, err := programsOf(b.root, images)
	if err != nil {
		return err
	}
	bin := filepath.Join(b.out, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("making the output directory: %w", err)
	}
	if err := compile(ctx, b.root, bin, programs, b.log); err != nil {
		return err
	}
	layers, err := newBases(b.log)
	if err != nil {
		return err
	}
	for _, i := range images {
		if err := b.write(ctx, i, bin, layers); err != nil {
			return fmt.Errorf("building image %s: %w", i.name, err)
		}
	}
	return nil
}

// complete checks what the flags said and fills in what they left out.
func (b *builder) complete() error {
	switch {
	case b.out == "":
		return errors.New("say where the tarballs go: --out DIR")
	case b.tag == "":
		return errors.New("say which tag the images get: --tag TAG")
	case b.tag == "latest":
		return errors.New("the tag latest is refused: a kubelet would pull it from a registry each time; take a version")
	}
	if _, err := b.ref("tools"); err != nil {
		return fmt.Errorf("--repo %q and --tag %q make no image name: %w", b.repo, b.tag, err)
	}
	if b.root == "" {
		root, err := findRoot(".")
		if err != nil {
			return err
		}
		b.root = root
	}
	abs, err := filepath.Abs(b.out)
	b.out = abs
	return err
}

func (b *builder) ref(image string) (name.Tag, error) {
	return name.NewTag(b.repo+"/"+image+":"+b.tag, name.StrictValidation)
}

func (b *builder) write(ctx context.Context, i image, bin string, layers *bases) error {
	start := time.Now()
	base, err := layers.layer(ctx, i.base)
	if err != nil {
		return err
	}
	add := []v1.Layer{base}
	for _, p := range i.programs {
		l, err := programLayer(bin, p)
		if err != nil {
			return err
		}
		add = append(add, l)
	}
	img, err := assemble(i, b.tag, add)
	if err != nil {
		return err
	}
	ref, err := b.ref(i.name)
	if err != nil {
		return err
	}
	file := filepath.Join(b.out, i.name+".tar")
	if same, err := holds(file, ref, img); err != nil || same {
		fmt.Fprintf(b.log, "images: %s is unchanged (%s)\n", ref, file)
		return err
	}
	if err := replace(file, func(tmp string) error { return tarball.WriteToFile(tmp, ref, img) }); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.log, "images: %s written to %s (%.1f MB, %.1f s)\n", ref, file, float64(info.Size())/1e6, time.Since(start).Seconds())
	return nil
}

// assemble makes an image of layers. The tag is a label too, so that a running container can be asked for its version.
func assemble(i image, tag string, layers []v1.Layer) (v1.Image, error) {
	config := i.config
	config.Labels = map[string]string{
		"org.opencontainers.image.title":    i.title,
		"org.opencontainers.image.version":  tag,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created, file.Config = "linux", runtime.GOARCH, v1.Time{Time: layer.Epoch}, config
	return mutate.ConfigFile(img, file)
}

// programLayer holds one program at the root, so that only the layer of a changed program changes.
func programLayer(bin, program string) (v1.Layer, error) {
	content, err := os.ReadFile(filepath.Join(bin, program))
	if err != nil {
		return nil, err
	}
	t := layer.New()
	t.File("usr/local/bin/"+program, 0o755, content)
	return inMemory(t)
}

func inMemory(t *layer.Tree) (v1.Layer, error) {
	var zipped bytes.Buffer
	if _, err := t.WriteTo(&zipped); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(zipped.Bytes())), nil })
}

// holds says whether a tarball has this very image under this very name. An image is named by its configuration, which lists the
// digests of its layers.
func holds(file string, ref name.Tag, img v1.Image) (bool, error) {
	want, err := img.ConfigName()
	if err != nil {
		return false, err
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil || len(manifest) != 1 {
		return false, nil // missing, or not ours: it is written anew
	}
	m := manifest[0]
	return m.Config == want.String() && len(m.RepoTags) == 1 && m.RepoTags[0] == ref.String(), nil
}

// replace writes a file beside its place and renames it there: who reads it, or finds it after a crash, finds a whole one.
func replace(file string, write func(tmp string) error) error {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tmp := filepath.Join(dir, filepath.Base(file))
	if err := write(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
