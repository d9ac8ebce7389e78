// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"iter"
	"time"
)

// OpenAIConfig says how to reach an endpoint that speaks OpenAI's chat-completions API.
type OpenAIConfig struct {
	// BaseURL ends before /chat/completions, for example https://api.deepseek.com/v1.
	BaseURL string
	// KeyFile holds the API key and is read for each request, so that a rotated
	// key is picked up. Empty means that the endpoint wants none.
	KeyFile string
	// CAFile holds PEM certificates to trust instead of the system's.
	CAFile string
	// ConnectTimeout bounds dialling and the TLS handshake, each; 0 is 10 s.
	ConnectTimeout time.Duration
	// IdleTimeout bounds the wait for the next byte, also for the first; 0 is 2 min.
	IdleTimeout time.Duration
	// TotalTimeout bounds one answer; 0 is 30 min.
	TotalTimeout time.Duration
}

// OpenAIChat is the Provider for any OpenAI-compatible endpoint.
type OpenAIChat struct{}

// NewOpenAIChat checks the configuration. It does not dial and does not read the key.
func NewOpenAIChat(c OpenAIConfig) (*OpenAIChat, error) { return nil, errors.ErrUnsupported }

// Prepare implements Provider.
func (p *OpenAIChat) Prepare(r Request) (Prepared, error) { return Prepared{}, errors.ErrUnsupported }

// Send implements Provider.
func (p *OpenAIChat) Send(ctx context.Context, prepared Prepared) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) { yield(Delta{}, errors.ErrUnsupported) }
}

var _ Provider = (*OpenAIChat)(nil)
