// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/agentsession-dev/operator/internal/agent"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/replaymodel"
)

//go:embed testdata/forbidden.yaml
var forbiddenScript string

//go:embed testdata/trying.yaml
var tryingScript string

//go:embed testdata/asking.yaml
var askingScript string

// scripted is a model of ours for each arm. It demands that every request states the arm's wording.
type scripted struct {
	provider string
	servers  []*http.Server
	urls     map[string]string // by arm
}

// selfTestEndpoint stands in the plan of a run without a model.
func selfTestEndpoint(provider string) Endpoint {
	return Endpoint{Provider: provider, BaseURL: "none: scripts of hack/wording/testdata", Model: "replay"}
}

func startScripts(provider string, asks policy.Approval, arms []Arm) (*scripted, error) {
	s := &scripted{provider: provider, urls: map[string]string{}}
	for _, a := range arms {
		text := tryingScript
		switch {
		case a.Control:
			text = forbiddenScript
		case asks == policy.ApprovalAsk:
			text = askingScript
		}
		snapshot, err := json.Marshal(a.Snapshot)
		if err != nil {
			return s, err
		}
		script, err := replaymodel.Parse([]byte(strings.ReplaceAll(text, "SNAPSHOT", string(snapshot))))
		if err != nil {
			return s, fmt.Errorf("the script for %s: %w", a.Name, err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return s, err
		}
		server := &http.Server{Handler: replaymodel.New(script), ReadHeaderTimeout: 10 * time.Second}
		s.servers = append(s.servers, server)
		s.urls[a.Name] = "http://" + l.Addr().String()
		go func() { _ = server.Serve(l) }() // until it is closed
	}
	return s, nil
}

func (s *scripted) endpoint(a Arm) Endpoint {
	e := Endpoint{Provider: s.provider, BaseURL: s.urls[a.Name], Model: "replay"}
	if s.provider == "OpenAIChat" {
		e.BaseURL += "/v1"
	}
	return e
}

// strictly runs sessions that must end as their script does: a request that a script refuses is a
// fault of the loop, or of the script.
func strictly(run func(context.Context, Arm, Task) (Session, error)) func(context.Context, Arm, Task) (Session, error) {
	return func(ctx context.Context, a Arm, t Task) (Session, error) {
		s, err := run(ctx, a, t)
		if err == nil && s.End != agent.ReasonCompleted {
			err = fmt.Errorf("a scripted session of %s, %s, ended as %s: %s", a.Name, t.Name, s.End, s.Why)
		}
		return s, err
	}
}

func (s *scripted) close() {
	for _, server := range s.servers {
		_ = server.Close()
	}
}
