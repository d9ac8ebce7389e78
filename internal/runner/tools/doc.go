// SPDX-License-Identifier: Apache-2.0

// Package tools performs the file tools. It runs inside the sandbox of the call, as
// what a child of its init becomes: what may be read and written is the
// kernel's decision, and this package only reports it. Paths inside the workspace go
// through os.Root, so that no link leads out of it by surprise.
package tools

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agentsession-dev/operator/internal/tool"
)

// Exit statuses by which the supervisor knows how a file tool ended.
const (
	StatusOK          = 0
	StatusError       = 1 // the output says what was wrong
	StatusDeniedWrite = 3
	StatusDeniedRead  = 4
)

// Run performs one tool with the arguments on in and writes its result to out. The version is that of the
// file as the caller knows it, see wire.Start.
func Run(name, workspace, version string, in io.Reader, out io.Writer) int {
	text, now, err := run(name, workspace, version, in)
	status := StatusOK
	switch {
	case err != nil:
		text, status = err.Error(), statusOf(err)
	case version != "" && now != "":
		text = tool.WithVersion(text, now)
	}
	if _, err := io.WriteString(out, text); err != nil {
		return StatusError
	}
	return status
}

// run gives what the tool says, and the version that its file has now.
func run(name, workspace, version string, in io.Reader) (text, now string, err error) {
	raw, err := io.ReadAll(io.LimitReader(in, 8*tool.MaxArguments))
	if err != nil {
		return "", "", fmt.Errorf("reading the arguments: %w", err)
	}
	c, err := tool.Canonical(name, raw)
	if err != nil {
		return "", "", err
	}
	switch a := c.Arguments.(type) {
	case *tool.Read:
		return read(workspace, a)
	case *tool.Write:
		text, err = write(workspace, a)
		return text, tool.VersionOf(a.Content), err
	case *tool.Edit:
		return edit(workspace, a, version)
	case *tool.Glob:
		text, err = glob(workspace, a)
	case *tool.Grep:
		text, err = grep(workspace, a)
	default:
		err = fmt.Errorf("%s is not a file tool", name)
	}
	return text, "", err
}

// denied is an error of the tool's own operation that the sandbox, or the file's
// permissions, caused.
type denied struct {
	status int
	err    error
}

func (d *denied) Error() string { return d.err.Error() }
func (d *denied) Unwrap() error { return d.err }

func statusOf(err error) int {
	if d, ok := errors.AsType[*denied](err); ok {
		return d.status
	}
	return StatusError
}

// failed words an error for the model and marks it as a denial if it is one.
func failed(doing, path string, status int, err error) error {
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot %s %s: there is no such file or directory", doing, path)
	}
	if strings.Contains(err.Error(), "path escapes") {
		err = fmt.Errorf("a symbolic link in it leads out of the workspace; name the target by its own path: %w", syscall.EACCES)
	}
	wrapped := fmt.Errorf("cannot %s %s: %w", doing, path, err)
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EROFS) {
		return &denied{status, wrapped}
	}
	return wrapped
}

// tree is where a path is looked up: the workspace, or everything.
type tree interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	MkdirAll(name string, perm fs.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
}

// locate finds the tree and the name in it. Which one it is decides nothing about
// what is permitted.
func locate(workspace, path string) (tree, string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(workspace, path)
	}
	name, err := filepath.Rel(workspace, filepath.Clean(path))
	if err != nil || !filepath.IsLocal(name) {
		return everything{}, filepath.Clean(path), nil
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, "", fmt.Errorf("opening the workspace: %w", err)
	}
	return root, name, nil
}

// everything is the file system as it is.
type everything struct{}

func (everything) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}
func (everything) Lstat(name string) (fs.FileInfo, error)       { return os.Lstat(name) }
func (everything) Readlink(name string) (string, error)         { return os.Readlink(name) }
func (everything) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }
func (everything) Rename(from, to string) error                 { return os.Rename(from, to) }
func (everything) Remove(name string) error                     { return os.Remove(name) }
