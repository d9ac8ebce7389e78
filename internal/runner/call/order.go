// SPDX-License-Identifier: Apache-2.0

package call

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
)

// Order is a call as its supervisor knows it.
type Order struct {
	Profile   policy.Profile
	Tool      string
	Arguments string // canonical JSON
	Workspace string
	Version   string   // see wire.Start
	Variables []string // of the class, NAME=VALUE, for commands; file tools need none

	// Decoded are the arguments, where they have been decoded and found canonical before.
	Decoded tool.Arguments
}

// assignment is what init is told about a call. It travels through a socket pair, never
// through arguments or the environment, which other processes can read. Its form is
// plain, so that reading it costs next to nothing: numbers of 4 bytes, big-endian, and
// texts behind their lengths, every one of them there.
type assignment struct {
	rules
	program
}

// rules are what a prepared sandbox depends on.
type rules struct {
	profile   policy.Profile
	workspace string
}

// maxOrder is the largest order, in bytes.
const maxOrder = 8 << 20

// Marks of an assignment.
const (
	withInput    = 1 << iota // there is something to read for the program
	withTerminal             // its output is a terminal
	allMarks     = withInput | withTerminal
)

// encodeOrder works out what the child becomes, and puts it in the form that init takes.
func encodeOrder(o Order) ([]byte, error) {
	p, err := programFor(o)
	if err != nil {
		return nil, err
	}
	return assignment{rules{o.Profile, o.Workspace}, p}.encode()
}

func (a assignment) encode() ([]byte, error) {
	marks := uint32(0)
	if a.stdin != nil {
		marks |= withInput
	}
	if a.terminal {
		marks |= withTerminal
	}
	b := make([]byte, 4, 1<<10)
	b = appendNumbers(b, uint32(a.profile.Mode), uint32(a.profile.Network), marks)
	b = appendTexts(b, a.workspace, a.path, a.dir)
	b = appendTexts(appendNumbers(b, uint32(len(a.argv))), a.argv...) //nolint:gosec // a handful
	b = appendTexts(appendNumbers(b, uint32(len(a.env))), a.env...)   //nolint:gosec // a handful
	b = appendTexts(b, string(a.stdin))
	if len(b)-4 > maxOrder {
		return nil, fmt.Errorf("encoding order: %d bytes are more than %d", len(b)-4, maxOrder)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // at most maxOrder
	return b, nil
}

func appendNumbers(b []byte, numbers ...uint32) []byte {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

func appendTexts(b []byte, texts ...string) []byte {
	for _, t := range texts {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(t))), t...) //nolint:gosec // bounded by maxOrder
	}
	return b
}

// decodeOrder reads the body of an order. Every part must be there, and nothing else:
// a missing profile must not become the zero one by chance.
func decodeOrder(body []byte) (assignment, error) {
	r := orderBody{rest: body}
	mode, network, marks := r.number(), r.number(), r.number()
	a := assignment{rules: rules{workspace: r.text()}}
	a.path, a.dir = r.text(), r.text()
	a.argv, a.env = r.texts(), r.texts()
	input := r.text()
	a.terminal = marks&withTerminal != 0
	if marks&withInput != 0 {
		a.stdin = []byte(input)
	}
	modes := policy.Modes()
	switch {
	case r.short || len(r.rest) > 0:
		return assignment{}, errors.New("reading order: it is not of the right length")
	case mode >= uint32(len(modes)) || network > uint32(policy.NetworkOpen): //nolint:gosec // three
		return assignment{}, fmt.Errorf("reading order: there is no profile %d, %d", mode, network)
	case marks&^allMarks != 0 || a.stdin == nil && input != "":
		return assignment{}, fmt.Errorf("reading order: its marks %x are not known", marks)
	}
	a.profile = policy.Profile{Mode: modes[mode], Network: policy.Network(network)}
	return a, nil
}

// orderBody is read from its beginning; what is beyond its end is short.
type orderBody struct {
	rest  []byte
	short bool
}

func (r *orderBody) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.rest)) {
		r.rest, r.short = nil, true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *orderBody) number() uint32 {
	b := r.take(4)
	if r.short {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func (r *orderBody) text() string { return string(r.take(r.number())) }

func (r *orderBody) texts() []string {
	var all []string
	for range r.number() {
		if r.short {
			return nil
		}
		all = append(all, r.text())
	}
	return all
}

// End is how a call ended. Nothing that it started lives any more, unless Left says so.
type End struct {
	Status    int    // exit status of the command, if it exited
	Signal    string // that ended it, if one did
	Processes int    // left over by the command and ended with it
	Left      bool   // only the command itself has ended: the kernel has no scopes, sweep the container
}

// endBytes is how long an end is, as init tells it.
const endBytes = 12

// encodeEnd tells how the command ended, how many processes were ended with it, and
// whether any may be left.
func encodeEnd(status unix.WaitStatus, processes int, left bool) []byte {
	flag := uint32(0)
	if left {
		flag = 1
	}
	return appendNumbers(make([]byte, 0, endBytes), uint32(status), uint32(processes), flag) //nolint:gosec // the kernel has fewer processes
}

func decodeEnd(b []byte) (End, error) {
	if len(b) != endBytes {
		return End{}, fmt.Errorf("an end of %d bytes", len(b))
	}
	status := unix.WaitStatus(binary.BigEndian.Uint32(b))
	e := End{Processes: int(binary.BigEndian.Uint32(b[4:])), Left: binary.BigEndian.Uint32(b[8:]) != 0}
	if !status.Signaled() {
		e.Status = status.ExitStatus()
		return e, nil
	}
	if e.Signal = unix.SignalName(status.Signal()); e.Signal == "" {
		e.Signal = fmt.Sprintf("signal %d", int(status.Signal()))
	}
	return e, nil
}
