// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Options say what to fetch, and where to.
type Options struct {
	Workspace string // to be filled
	StateDir  string // remembers what has been fetched; no tool sees it
	Git       *Git   // one of both is set
	Files     *Files
	Log       *slog.Logger
}

// Trouble is why a source cannot be had, in words for people.
type Trouble struct {
	Later bool // it may pass by itself
	Text  string
}

func (t *Trouble) Error() string { return t.Text }

func act(format string, args ...any) error { return &Trouble{Text: fmt.Sprintf(format, args...)} }

func later(format string, args ...any) error {
	return &Trouble{Later: true, Text: fmt.Sprintf(format, args...)}
}

const (
	begun   = "begun"
	fetched = "fetched"
)

// record is what is remembered of a fetch, for people.
type record struct {
	URL    string `json:"url,omitempty"`
	Ref    string `json:"ref,omitempty"`
	Commit string `json:"commit,omitempty"`
	Files  string `json:"configMap,omitempty"`
}

// Fetch fills the workspace, unless that has been done. An error that is a *Trouble says
// what is wrong with the source; any other is about this container.
func Fetch(ctx context.Context, o Options) error {
	if exists(filepath.Join(o.StateDir, fetched)) {
		o.Log.Info("The workspace has been fetched before and is left as it is")
		return nil
	}
	if err := prepare(o); err != nil {
		return err
	}
	var r record
	var err error
	if o.Git != nil {
		r, err = o.Git.clone(ctx, o.Workspace)
	} else {
		r, err = o.Files.copy(o.Workspace)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return act("the volume is too small for it: create the session anew with a larger workspace.storage.size")
	}
	if err != nil {
		return err
	}
	if err := settle(o, r); err != nil {
		return err
	}
	o.Log.Info("The workspace is fetched", "url", r.URL, "ref", r.Ref, "commit", r.Commit, "configMap", r.Files)
	return nil
}

// prepare empties a workspace that an earlier fetch has left half full.
func prepare(o Options) error {
	root, err := os.OpenRoot(o.Workspace)
	if err != nil {
		return fmt.Errorf("opening the workspace: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("reading the workspace: %w", err)
	}
	if !exists(filepath.Join(o.StateDir, begun)) {
		if len(entries) > 0 {
			return act("the workspace holds files that were not fetched (%.80q and others): nothing is fetched over them", entries[0].Name())
		}
		return write(o.StateDir, begun, nil)
	}
	for _, e := range entries {
		if err := root.RemoveAll(e.Name()); err != nil {
			return fmt.Errorf("removing what an unfinished fetch has left: %w", err)
		}
	}
	return nil
}

// settle has the workspace on disk, and then that it is fetched.
func settle(o Options, r record) error {
	dir, err := os.Open(o.Workspace)
	if err != nil {
		return fmt.Errorf("opening the workspace: %w", err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("writing the workspace to disk: %w", err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the record: %w", err)
	}
	return write(o.StateDir, fetched, append(text, '\n'))
}

// write makes a file that is whole and durable once it has its name.
func write(dir, name string, content []byte) (err error) {
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return fmt.Errorf("remembering the fetch: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return fmt.Errorf("remembering the fetch: %w", errors.Join(err, os.Remove(f.Name())))
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("remembering the fetch: %w", err)
	}
	defer d.Close()
	return d.Sync()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
