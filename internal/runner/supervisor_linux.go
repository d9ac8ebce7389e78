// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/agentsession-dev/operator/internal/runner/call"
	"github.com/agentsession-dev/operator/internal/runner/sandbox"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Supervisor is the first process of one tools container.
type Supervisor struct {
	Container    string        // wire.ToolsRO or wire.ToolsRW
	CtlDir       string        // where the agent has its lock and its socket
	Workspace    string        // absolute
	AgentTimeout time.Duration // how long it lives without an agent
	Variables    []string      // NAME=VALUE, in the environment of commands
	Log          *slog.Logger

	// Probe finds out what can be enforced; nil means package runner's Probe.
	Probe func(r call.Reaper, workspace string) wire.Enforcement
}

// errNoAgent ends the supervisor, and so its container.
var errNoAgent = errors.New("there was no agent for too long")

// Run serves one agent connection after the other until the context ends, which is
// the orderly end, or until there is no agent for the timeout. It never returns with
// anything alive in the container.
func (s *Supervisor) Run(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := sandbox.Hide(); err != nil {
		return err
	}
	r, err := newReaper()
	if err != nil {
		return err
	}
	if _, err := r.sweep(); err != nil {
		return err
	}
	probe := s.Probe
	if probe == nil {
		probe = Probe
	}
	e := inContainer(probe(r, s.Workspace), s.Container)
	s.Log.Info("Probed the node", "level", e.Level, "landlockABI", e.LandlockABI, "layers", e.Layers, "detail", e.Detail)

	var lock *os.File
	boot := rand.Text()
	for ctx.Err() == nil {
		if _, err := r.sweep(); err != nil { // also what the probe could have left
			return err
		}
		c, err := s.reach(ctx, &lock, wire.Hello{Wire: wire.Version, Container: s.Container, Boot: boot, Enforcement: e})
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		stands := standing{s.Container, s.Workspace, e, c.welcome.Epoch, c.welcome.Bound, s.Variables}
		s.Log.Info("Serving the agent", "epoch", stands.epoch.String(), "mode", stands.bound.Mode.String())
		err = newSession(c, r, stands).serve(ctx)
		s.Log.Info("The connection to the agent ended", "reason", fmt.Sprint(err))
	}
	_, err = r.sweep()
	return err
}

func (s *Supervisor) check() error {
	if s.Container != wire.ToolsRO && s.Container != wire.ToolsRW {
		return fmt.Errorf("there is no container %q: use %s or %s", s.Container, wire.ToolsRO, wire.ToolsRW)
	}
	if !filepath.IsAbs(s.Workspace) || filepath.Clean(s.Workspace) != s.Workspace || s.Workspace == "/" {
		return fmt.Errorf("the workspace %q must be an absolute path below /", s.Workspace)
	}
	for _, v := range s.Variables {
		if err := call.CheckVariable(v); err != nil {
			return err
		}
	}
	if s.AgentTimeout <= 0 {
		return errors.New("the agent time-out must be more than nothing")
	}
	return nil
}

// reach takes the lock, if it is not held yet, and connects to the agent.
func (s *Supervisor) reach(ctx context.Context, lock **os.File, h wire.Hello) (*connections, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.AgentTimeout, errNoAgent)
	defer cancel()
	if *lock == nil {
		l, err := takeLock(ctx, s.CtlDir)
		if err != nil {
			return nil, err
		}
		*lock = l
	}
	return retry(ctx, func() (*connections, error) {
		return connect(ctx, filepath.Join(s.CtlDir, wire.SocketName), h, *lock)
	})
}
