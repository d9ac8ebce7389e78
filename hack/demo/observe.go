// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// turnsEnded waits until the session is idle after its n-th turn.
func (d *demo) turnsEnded(ctx context.Context, n int) error {
	var s v1alpha1.AgentSession
	err := poll(ctx, func() bool {
		err := d.client.Get(ctx, demoKey, &s)
		return err == nil && s.Status.Activity != nil && s.Status.Activity.Turns >= int64(n) && s.Status.Activity.State == "Idle"
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of turn %d: %w", n, err)
	}
	return nil
}

// logEvent returns the n-th event of a type as kubectl logs shows it.
func (d *demo) logEvent(ctx context.Context, kind string, n int) (string, error) {
	pod, err := d.pod(ctx)
	if err != nil {
		return "", err
	}
	var line string
	err = poll(ctx, func() bool {
		out, err := d.quietly().Kubectl(ctx, "-n", namespace, "logs", pod, "-c", "agent")
		line = nthEvent(out, kind, n)
		return err == nil && line != ""
	})
	if err != nil {
		return "", fmt.Errorf("waiting for %s in the log: %w", kind, err)
	}
	fmt.Printf("\n$ kubectl -n %s logs %s | grep %s | tail -1\n    %s\n", namespace, pod, kind, line)
	return line, nil
}

func nthEvent(log, kind string, n int) string {
	lines := bufio.NewScanner(strings.NewReader(log))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct {
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Type == kind {
			if n--; n == 0 {
				return lines.Text()
			}
		}
	}
	return ""
}

func poll(ctx context.Context, done func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("it did not happen within 30 s"))
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
