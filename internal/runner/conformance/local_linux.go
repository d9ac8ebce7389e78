// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/pty"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/tool"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Local runs calls by itself, by the same path as a supervisor: inside a tools
// container, beside the supervisor that is there.
type Local struct {
	workspace string
	inits     *call.Pool
}

// NewLocal makes a caller whose workspace is at a path. Close ends what waits for calls.
func NewLocal(workspace string) Local { return Local{workspace, call.NewPool(call.Waiter{})} }

// Close ends the processes that wait for calls.
func (l Local) Close() { l.inits.Empty() }

const localOutput = 1 << 20

// Call implements Caller.
func (l Local) Call(p policy.Profile, name, arguments string) (Result, error) {
	r, written, err := l.launch(call.Order{Profile: p, Tool: name, Arguments: arguments, Workspace: l.workspace})
	if err != nil {
		return Result{}, err
	}
	defer written.Close()
	defer r.Close()
	if err := r.Begin(); err != nil {
		r.Kill()
		_, waitErr := r.Wait()
		return Result{}, errors.Join(err, waitErr)
	}
	output := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(written, localOutput)) // what came before an error is the output
		output <- string(b)
	}()
	end, err := r.Wait()
	if err != nil {
		return Result{}, err
	}
	_ = written.SetReadDeadline(time.Now().Add(time.Second))
	res := Result{Exited: wire.Exited{Cause: wire.Finished, Status: end.Status, Signal: end.Signal, Processes: end.Processes}, Output: strings.ReplaceAll(<-output, "\r\n", "\n")}
	if name != "bash" && name != tool.TerminalName {
		res.Status, res.Denial = call.FileToolStatus(end)
	}
	return res, nil
}

// launch starts a call, in a terminal where it wants one, and returns what it writes to.
func (l Local) launch(o call.Order) (*call.Running, *os.File, error) {
	if o.Tool != tool.TerminalName {
		r, err := l.inits.Launch(o)
		if err != nil {
			return nil, nil, err
		}
		return r, r.Output, nil
	}
	p, err := pty.Open(24, 80)
	if err != nil {
		return nil, nil, err
	}
	defer p.Far.Close()
	r, err := l.inits.LaunchIn(o, int(p.Far.Fd()))
	if err != nil {
		return nil, nil, errors.Join(err, p.Near.Close())
	}
	return r, p.Near, nil
}

// Here is the place of Local.
func (l Local) Here(toolbox string) Place {
	return Place{Toolbox: toolbox, Workspace: l.workspace, Host: func(p string) string { return p }, User: -1, NoScopes: !sandbox.Scoped()}
}

// CanPrepare reports whether fixtures can be made.
func (p Place) CanPrepare() error {
	dir, err := os.MkdirTemp(p.Host(p.Workspace), "conformance-")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}
