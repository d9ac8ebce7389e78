// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Local runs calls by itself, by the same path as a supervisor: inside a tools
// container, beside the supervisor that is there.
type Local struct{ Workspace string }

const localOutput = 1 << 20

// Call implements Caller.
func (l Local) Call(p policy.Profile, tool, arguments string) (Result, error) {
	r, err := call.Launch(call.Waiter{}, call.Order{Profile: p, Tool: tool, Arguments: arguments, Workspace: l.Workspace})
	if err != nil {
		return Result{}, err
	}
	defer r.Close()
	if err := r.Ready(); err != nil {
		r.Kill()
		_, waitErr := r.Wait()
		return Result{}, errors.Join(err, waitErr)
	}
	if err := errors.Join(r.Release(), r.Started()); err != nil {
		return Result{}, err
	}
	output := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(r.Output, localOutput)) // what came before an error is the output
		output <- string(b)
	}()
	end, err := r.Wait()
	if err != nil {
		return Result{}, err
	}
	_ = r.Output.SetReadDeadline(time.Now().Add(time.Second))
	res := Result{Exited: wire.Exited{Cause: wire.Finished, Status: end.Status, Signal: end.Signal, Processes: end.Processes}, Output: <-output}
	if tool != "bash" {
		res.Status, res.Denial = call.FileToolStatus(end)
	}
	return res, nil
}

// Here is the place of Local.
func (l Local) Here(toolbox string) Place {
	return Place{Toolbox: toolbox, Workspace: l.Workspace, Host: func(p string) string { return p }, User: -1}
}

// CanPrepare reports whether fixtures can be made.
func (p Place) CanPrepare() error {
	dir, err := os.MkdirTemp(p.Host(p.Workspace), "conformance-")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}
