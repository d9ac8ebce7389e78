// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"
)

// anthropicVersion is the version of the API that the bodies are written for. It
// is pinned here, so that an upgrade of the SDK changes nothing that is sent.
const anthropicVersion = "2026-10-21"

// Anthropic is the Provider for endpoints that speak Anthropic's messages API.
type Anthropic struct{ *connection }

var _ Connected = (*Anthropic)(nil)

// NewAnthropic checks the configuration. It does not dial and does not read the key.
func NewAnthropic(c Config) (*Anthropic, error) {
	conn, err := newConnection(c, "a messages API", messagesPath(c.BaseURL), anthropicDialect{})
	if err != nil {
		return nil, err
	}
	return &Anthropic{conn}, nil
}

// messagesPath is what the API adds to the base URL: people write it with and
// without the version.
func messagesPath(base string) string {
	if strings.HasSuffix(strings.TrimRight(base, "/"), "/v1") {
		return "/messages"
	}
	return "/v1/messages"
}

type anthropicDialect struct{}

// post puts the client together by hand: anthropic.NewClient would take keys,
// profiles, headers and a base URL from the environment.
func (anthropicDialect) post(ctx context.Context, c call) (*http.Response, error) {
	client := anthropic.Client{Options: []option.RequestOption{
		option.WithBaseURL(strings.TrimRight(c.baseURL, "/") + "/"), option.WithMaxRetries(0), option.WithHTTPClient(c.client),
		option.WithHeader("anthropic-version", anthropicVersion),
	}}
	if c.key != "" { // not WithAPIKey, which sends a bearer token: every server of this API knows the header
		client.Options = append(client.Options, option.WithHeader("x-api-key", c.key))
	}
	var resp *http.Response
	err := client.Post(ctx, strings.TrimPrefix(messagesPath(c.baseURL), "/"), c.body, &resp)
	return resp, err
}

// read takes the SDK's decoder of events and not its stream: that one passes over
// events without a name, which is how something else than this API looks.
func (d anthropicDialect) read(resp *http.Response, at endpoint, model string, yield func(Delta) bool) (*Answer, error) {
	events := ssestream.NewDecoder(resp)
	defer events.Close()
	acc := &messageAnswer{answerParts: answerParts{at: at}, byIndex: map[int64]*messageBlock{}}
	for events.Next() {
		raw := events.Event()
		if len(raw.Data) == 0 || raw.Type == "ping" {
			continue
		}
		var e anthropic.MessageStreamEventUnion
		if err := json.Unmarshal(raw.Data, &e); err != nil {
			return nil, at.nonsense(err.Error())
		}
		switch e.Type {
		case "":
			return nil, at.nonsense("an event without a type")
		case "error":
			return nil, d.failure(at, raw.Data, model)
		case "message_stop":
			return acc.answer()
		}
		delta, err := acc.add(&e)
		if err != nil {
			return nil, err
		}
		if (delta.Content != "" || delta.Reasoning != "") && !yield(delta) {
			return nil, nil
		}
	}
	if err := events.Err(); err != nil {
		return nil, at.decoding(err)
	}
	return acc.answer()
}

// failures are the statuses of the errors that may come inside a stream.
var failures = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusForbidden,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
}

func (anthropicDialect) failure(at endpoint, body []byte, model string) error {
	var said struct {
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	code := http.StatusInternalServerError // api_error, overloaded_error, and what is not known
	if json.Unmarshal(body, &said) == nil && failures[said.Error.Type] != 0 {
		code = failures[said.Error.Type]
	}
	return at.inStream(code, body, model)
}
