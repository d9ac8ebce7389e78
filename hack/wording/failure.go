// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/agentsession-dev/operator/internal/agent/model"
)

// modelFailure is the log of an agent, of which it keeps why the last request without an
// answer had none.
type modelFailure struct {
	mu   sync.Mutex
	last string
}

// noAnswer is what the agent logs of it, with the reason beside.
const noAnswer = "The model gave no answer"

// Enabled implements slog.Handler.
func (*modelFailure) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (f *modelFailure) Handle(_ context.Context, r slog.Record) error {
	if r.Message != noAnswer {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.last = a.Value.String()
		}
		return true
	})
	return nil
}

// WithAttrs implements slog.Handler.
func (f *modelFailure) WithAttrs([]slog.Attr) slog.Handler { return f }

// WithGroup implements slog.Handler.
func (f *modelFailure) WithGroup(string) slog.Handler { return f }

func (f *modelFailure) reason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// transport reports whether a reason is one for which the same request may succeed later: nothing
// that was said to the model has part in it.
func transport(reason string) bool {
	kinds := []model.Kind{model.Refused, model.RateLimited, model.Server, model.Timeout, model.BrokenStream}
	return slices.ContainsFunc(kinds, func(k model.Kind) bool {
		e := model.Error{Kind: k}
		return e.Retryable() && e.Reason() == reason
	})
}
