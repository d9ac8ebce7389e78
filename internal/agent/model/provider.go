// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The providers, by the names under which they are configured and logged.
const (
	ProviderOpenAIChat = "OpenAIChat"
	ProviderAnthropic  = "Anthropic"
)

// Providers are the names that New knows.
func Providers() []string { return []string{ProviderAnthropic, ProviderOpenAIChat} }

// Known tells whether New knows a provider.
func Known(provider string) bool { return slices.Contains(Providers(), provider) }

// Config says how to reach an endpoint, whatever it speaks.
type Config struct {
	// BaseURL ends before what the API adds, for example https://api.deepseek.com/v1
	// for OpenAIChat, or https://api.anthropic.com for Anthropic (with /v1 or without).
	BaseURL string
	// KeyFile holds the API key and is read for each request, so that a rotated
	// key is picked up. Empty means that the endpoint wants none.
	KeyFile string
	// KeyRead, if set, is told each key before it is used.
	KeyRead func(key string)
	// CABundle holds PEM certificates to trust instead of the system's. Empty: the system's.
	CABundle string
	// ConnectTimeout bounds dialling and the TLS handshake, each; 0 is 10 s.
	ConnectTimeout time.Duration
	// IdleTimeout bounds the wait for the next byte, also for the first; 0 is 2 min.
	IdleTimeout time.Duration
	// TotalTimeout bounds one answer; 0 is 30 min.
	TotalTimeout time.Duration
}

// Connected is a Provider that holds connections.
type Connected interface {
	Provider
	// Close drops idle connections.
	Close()
}

// New makes the provider of that name. It does not dial and does not read the key.
func New(provider string, c Config) (Connected, error) {
	switch provider {
	case ProviderOpenAIChat:
		return connected(NewOpenAIChat(c))
	case ProviderAnthropic:
		return connected(NewAnthropic(c))
	default:
		return nil, errorf(BadRequest, "the model provider %.60q is not known: choose one of %s", provider, strings.Join(Providers(), ", "))
	}
}

// connected keeps a nil pointer from becoming an interface that is not nil.
func connected[P Connected](p P, err error) (Connected, error) {
	if err != nil {
		return nil, fmt.Errorf("setting up the model provider: %w", err)
	}
	return p, nil
}
