// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/agentsession-dev/operator/internal/wire"
)

// runInstall copies a program beside its destination and renames it: whoever looks finds
// either the old one or the whole new one. Beside it, it makes the place where the tools
// containers' last messages are mounted. It may be run again at any time.
func runInstall(args []string, stderr io.Writer) error {
	set := flag.NewFlagSet("agent install", flag.ContinueOnError)
	set.SetOutput(stderr)
	from := set.String("from", "/usr/local/bin/toolbox", "the program")
	to := set.String("to", "/toolbox/toolbox", "where it is to be")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%.40q is not a flag", set.Arg(0))
	}
	if err := install(*from, *to); err != nil {
		return fmt.Errorf("installing %s: %w", *to, err)
	}
	return makePrivate(filepath.Join(filepath.Dir(*to), wire.PrivateDir))
}

// makePrivate makes a directory that nobody else may enter, with the file that the kubelet
// mounts another one over: the volume is read-only there, so it must exist before.
func makePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil { // without the set-group bit that it gets from a volume of a group
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, path.Base(wire.TerminationLog)), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func install(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	if _, err = io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	if err = errors.Join(out.Chmod(0o755), out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}
