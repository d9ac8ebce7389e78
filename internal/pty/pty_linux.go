// SPDX-License-Identifier: Apache-2.0

// Package pty makes terminals: pairs of a near end, which types and sees what is
// written, and a far end, which a command has as its input and output. It knows
// neither commands nor who they are.
package pty

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pair is a terminal whose far end nobody has yet.
type Pair struct {
	Near *os.File // non-blocking, with deadlines
	Far  *os.File
}

// Open makes a terminal in this container's /dev/pts. Whoever gets the far end may open it
// again through its descriptor, also as another user; a path leads to it only here.
func Open(rows, cols int) (p Pair, err error) {
	near, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Pair{}, fmt.Errorf("opening /dev/ptmx: %w", err)
	}
	far, err := farEnd(near)
	if err != nil {
		return Pair{}, errors.Join(err, unix.Close(near))
	}
	p = Pair{os.NewFile(uintptr(near), "terminal"), os.NewFile(uintptr(far), "terminal")}
	err = errors.Join(Resize(p.Near, rows, cols), unix.Fchmod(far, 0o666), utf8(far))
	if err != nil {
		p.Close()
		return Pair{}, fmt.Errorf("setting up a terminal: %w", err)
	}
	return p, nil
}

// Close closes both ends.
func (p Pair) Close() {
	_ = p.Near.Close()
	_ = p.Far.Close()
}

func farEnd(near int) (int, error) {
	if err := unix.IoctlSetPointerInt(near, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlocking a terminal: %w", err)
	}
	// By descriptor (Linux 4.13), so that no path has to be believed.
	far, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(near), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return -1, fmt.Errorf("opening the far end of a terminal: %w", errno)
	}
	return int(far), nil
}

// utf8 makes the erase key erase whole characters.
func utf8(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag |= unix.IUTF8
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

// Resize sets the size, of which the command is told by a signal.
func Resize(near *os.File, rows, cols int) error {
	return control(near, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)})
	})
}

// MaxLine is the longest line that a terminal takes in line mode, its end included; the
// kernel drops what is beyond.
const MaxLine = 4095

// LineMode reports whether the terminal hands input over line by line.
func LineMode(near *os.File) (lines bool, err error) {
	err = control(near, func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			lines = t.Lflag&unix.ICANON != 0
		}
		return err
	})
	return lines, err
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(ctlErr, err)
}
