// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// segmentName is BOOT-PODUID-RANDOM.jsonl. Other files may live in the directory.
var segmentName = regexp.MustCompile(`^([0-9]{8})-([0-9A-Za-z-]{1,64})-([0-9a-f]{16})\.jsonl$`)

const maxBoot = 99_999_999

// segment is a file of the log as its name and its header tell of it.
type segment struct {
	name, path string
	boot       int
	header     header
	headerLen  int64
	// torn: the header was never completed, so no event can have been promised.
	torn bool
	// empty: nothing follows the header. Its promise about its predecessors
	// counts; but it does not end them, for nobody went on from there.
	empty bool
}

// listSegments reads the names and headers in dir, ordered by boot. A missing
// directory holds none.
func listSegments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the log directory: %w", err)
	}
	var all []segment
	for _, entry := range entries {
		match := segmentName.FindStringSubmatch(entry.Name())
		if match == nil {
			continue
		}
		if !entry.Type().IsRegular() {
			return nil, fmt.Errorf("log segment %s is not a regular file; move it away", filepath.Join(dir, entry.Name()))
		}
		s, err := readSegment(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		s.name = entry.Name()
		s.boot, _ = strconv.Atoi(match[1]) // eight digits always parse
		if !s.torn && s.boot != s.header.Boot {
			return nil, &DamageError{File: s.path, Line: 1, Why: fmt.Sprintf("the name says boot %d, the header %d", s.boot, s.header.Boot)}
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b segment) int { return a.boot - b.boot })
	return all, nil
}

func readSegment(path string) (segment, error) {
	f, err := os.Open(path)
	if err != nil {
		return segment{}, fmt.Errorf("opening log segment: %w", err)
	}
	defer f.Close()
	s := segment{path: path}
	r := newLineReader(f)
	line, n, err := r.next(maxHeader)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errNoNewline):
		s.torn = true
		return s, nil
	case err != nil && !errors.Is(err, errTooLong):
		return segment{}, fmt.Errorf("log segment %s: %w", path, err)
	}
	_, peekErr := r.r.Peek(1)
	if peekErr != nil && !errors.Is(peekErr, io.EOF) {
		return segment{}, fmt.Errorf("log segment %s: %w", path, peekErr)
	}
	s.headerLen, s.empty = n, peekErr != nil
	if err == nil {
		s.header, err = parseHeader(line)
	}
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, errVersion):
		return segment{}, fmt.Errorf("log segment %s: %w", path, err)
	case s.empty: // the crash came while the file was being created
		s.torn = true
		return s, nil
	default:
		return segment{}, &DamageError{File: path, Line: 1, Why: err.Error()}
	}
}

// createSegment makes this boot's file, with its header on disk.
func createSegment(d disk, dir string, h header, rand io.Reader) (sink, segment, error) {
	if h.Boot > maxBoot {
		return nil, segment{}, fmt.Errorf("boot %d does not fit the log's file names; start a new session", h.Boot)
	}
	var random [8]byte
	if _, err := io.ReadFull(rand, random[:]); err != nil {
		return nil, segment{}, fmt.Errorf("naming the log segment: %w", err)
	}
	name := fmt.Sprintf("%08d-%s-%s.jsonl", h.Boot, nameable(h.PodUID), hex.EncodeToString(random[:]))
	path := filepath.Join(dir, name)
	f, err := d.create(path)
	if err != nil {
		return nil, segment{}, fmt.Errorf("creating the log segment: %w", err)
	}
	line, err := encodeHeader(h)
	if err == nil {
		_, err = f.Write(line)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.sync(dir)
	}
	if err == nil {
		err = refuseRivals(dir, name, h.Boot)
	}
	if err != nil {
		f.Close()
		d.remove(path)
		return nil, segment{}, fmt.Errorf("creating the log segment: %w", err)
	}
	return f, segment{name: name, path: path, boot: h.Boot, header: h, headerLen: int64(len(line))}, nil
}

// refuseRivals sees to it that of two agents that start on one directory at the
// same moment, on nodes that do not share locks, at most one goes on: each
// creates its file first and looks second, so at least one sees the other.
func refuseRivals(dir, own string, boot int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		match := segmentName.FindStringSubmatch(entry.Name())
		if match == nil || entry.Name() == own {
			continue
		}
		if other, _ := strconv.Atoi(match[1]); other >= boot {
			return fmt.Errorf("%w: %s appeared while boot %d started; only one agent may run on this log", ErrLocked, entry.Name(), boot)
		}
	}
	return nil
}

// nameable makes a file name part of a pod UID, which is hex and dashes anyway.
func nameable(uid string) string {
	s := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, uid)
	if s == "" {
		return "unknown"
	}
	return s[:min(len(s), 64)]
}

// lockDir takes the directory's lock for as long as the file stays open. Where
// the file system has no locks, the exclusive segments have to do.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the log directory: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil, errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOLCK):
			return f, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("%w: another agent writes the log in %s; end it first", ErrLocked, dir)
		default:
			f.Close()
			return nil, fmt.Errorf("locking the log directory: %w", err)
		}
	}
}
