// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/agentsession-dev/operator/internal/agent"
	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

// sessionPatience bounds one session, the waits of its requests included.
const sessionPatience = 30 * time.Minute

// Endpoint is a model and where it is.
type Endpoint struct {
	Provider string `json:"provider"`
	BaseURL  string `json:"baseURL"`
	Model    string `json:"model"`
	KeyFile  string `json:"-"`
}

// runner runs real sessions: the agent's own loop, and tools in real containers.
type runner struct {
	toolbox  string
	policy   policy.Policy
	endpoint func(Arm) Endpoint
	sleep    func(context.Context, time.Duration) error // nil: the real one
}

// run is one fresh session: it is given its policy, then its task, and watched until the turn ends.
func (r runner) run(ctx context.Context, arm Arm, task Task) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	p, err := startPod(r.toolbox)
	if err != nil {
		return Session{}, err
	}
	defer p.stop()
	before, err := p.files()
	if err != nil {
		return Session{}, err
	}
	var failure modelFailure
	events, err := r.converse(ctx, p, arm, task, &failure)
	if err != nil {
		return Session{}, fmt.Errorf("a session of %s: %w", arm.Name, err)
	}
	after, err := p.files()
	if err != nil {
		return Session{}, err
	}
	s, err := read(events, failure.reason())
	if err != nil {
		return Session{}, err
	}
	s.Arm, s.Task = arm.Name, task.Name
	switch {
	case before != after:
		return s, errors.New("the workspace was modified under read-only: the sandbox does not hold here, and what a session shows means nothing")
	case s.Snapshot != arm.Snapshot:
		return s, fmt.Errorf("the session of %s was told something else than its arm says:\n%s", arm.Name, s.Snapshot)
	}
	return s, nil
}

// converse runs an agent until it has answered the task, and returns its log.
func (r runner) converse(ctx context.Context, p *pod, arm Arm, task Task, failure *modelFailure) ([]eventlog.Event, error) {
	const uid, incarnation, message = "wording", "first", "task"
	e := r.endpoint(arm)
	options := agent.Options{
		SessionUID: uid, Incarnation: incarnation, PodUID: "wording", Version: "wording",
		Containers: []string{wire.ToolsRO, wire.ToolsRW}, LogDir: filepath.Join(p.dir, "log"), CtlDir: p.volumes.Path("ctl"),
		KeyFile: e.KeyFile, Stdout: io.Discard, Log: slog.New(failure), Words: arm.words(), Sleep: r.sleep,
	}
	if e.KeyFile == "" {
		options.KeyFile = filepath.Join(p.dir, "no-key")
	}
	a, err := agent.New(options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ended sync.WaitGroup
	var endedWith error
	ended.Go(func() { endedWith = a.Run(ctx) })
	stop := func() error {
		cancel()
		ended.Wait()
		return endedWith
	}
	if err := p.start(); err != nil {
		return nil, errors.Join(err, stop())
	}
	desired := wire.Desired{
		Wire: wire.Version, SessionUID: uid, Incarnation: incarnation,
		Config: wire.Config{
			Session: "wording/session", Workspace: workspace, MinimumLevel: wire.LevelMount, Limits: wire.SessionLimits{MaxStepsPerTurn: maxSteps},
			Model: wire.Model{Provider: e.Provider, BaseURL: e.BaseURL, Name: e.Model},
		},
		Policy: string(policy.Encode(r.policy).Bytes), Stamp: policy.Stamp{SessionUID: uid, SessionGeneration: 1},
		Messages: []wire.Message{{UID: message, Content: task.Message}},
	}
	if _, _, err := a.SetDesired(ctx, desired); err != nil {
		return nil, errors.Join(err, stop())
	}
	for o := a.Observed(ctx, 0); !answered(o, message); o = a.Observed(ctx, o.Revision) {
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(fmt.Errorf("the turn did not end: %w", context.Cause(ctx)), stop())
		}
		if desired.Decisions = sayNo(o); len(desired.Decisions) > 0 {
			if _, _, err := a.SetDesired(ctx, desired); err != nil {
				return nil, errors.Join(err, stop())
			}
		}
		if detail := unenforced(o); detail != "" {
			return nil, errors.Join(fmt.Errorf("this kernel does not enforce read-only, so that no session can run: %s", detail), stop())
		}
	}
	if err := stop(); err != nil {
		return nil, err
	}
	var events []eventlog.Event
	for e, err := range eventlog.Read(options.LogDir) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

// unenforced says why no call can ever start here, if that is so.
func unenforced(o wire.Observed) string {
	for _, c := range o.Containers {
		if c.Connected && !c.Report.Level.AtLeast(wire.LevelMount) {
			return c.Report.Detail
		}
	}
	return ""
}

// sayNo is the person who is asked.
func sayNo(o wire.Observed) (all []wire.Decision) {
	for _, a := range o.Approvals {
		all = append(all, wire.Decision{CallID: a.CallID, Digest: a.Digest, Decision: wire.Denied, By: "wording"})
	}
	return all
}

func answered(o wire.Observed, message string) bool {
	for _, m := range o.Messages {
		if m.UID == message && m.State == wire.Answered {
			return true
		}
	}
	return false
}
