// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// OpenAIConfig says how to reach an endpoint that speaks OpenAI's chat-completions API.
type OpenAIConfig = Config

// OpenAIChat is the Provider for any OpenAI-compatible endpoint.
type OpenAIChat struct{ *connection }

var _ Connected = (*OpenAIChat)(nil)

// NewOpenAIChat checks the configuration. It does not dial and does not read the key.
func NewOpenAIChat(c Config) (*OpenAIChat, error) {
	conn, err := newConnection(c, "a chat-completions API", "/chat/completions", openAIDialect{})
	if err != nil {
		return nil, err
	}
	return &OpenAIChat{conn}, nil
}

type openAIDialect struct{}

// post puts the client together by hand: openai.NewClient would take keys,
// headers and a base URL from the environment.
func (openAIDialect) post(ctx context.Context, c call) (*http.Response, error) {
	client := openai.Client{Options: []option.RequestOption{
		option.WithBaseURL(c.baseURL), option.WithMaxRetries(0), option.WithHTTPClient(c.client),
	}}
	if c.key != "" {
		client.Options = append(client.Options, option.WithAPIKey(c.key))
	}
	var resp *http.Response
	err := client.Post(ctx, "chat/completions", c.body, &resp)
	return resp, err
}

func (d openAIDialect) read(resp *http.Response, at endpoint, model string, yield func(Delta) bool) (*Answer, error) {
	stream := ssestream.NewStream[openai.ChatCompletionChunk](ssestream.NewDecoder(resp), nil)
	defer stream.Close()
	acc := &chatAnswer{answerParts: answerParts{at: at}, byIndex: map[int64]*partialCall{}}
	for stream.Next() {
		chunk := stream.Current()
		delta, err := acc.add(&chunk)
		if err != nil {
			return nil, err
		}
		if (delta.Content != "" || delta.Reasoning != "") && !yield(delta) {
			return nil, nil
		}
	}
	if err := stream.Err(); err != nil {
		return nil, d.streamError(err, at, model)
	}
	return acc.answer()
}

// streamError classifies what the decoder says about the stream's content; what
// it says about the connection is passed on.
func (openAIDialect) streamError(err error, at endpoint, model string) error {
	if said, ok := errors.AsType[*ssestream.StreamError](err); ok {
		var shape struct {
			Error struct {
				Code any `json:"code"`
			} `json:"error"`
		}
		code := http.StatusInternalServerError
		if json.Unmarshal(said.Event.Data, &shape) == nil {
			if n, ok := shape.Error.Code.(float64); ok && n >= 400 && n < 600 {
				code = int(n)
			}
		}
		return at.inStream(code, said.Event.Data, model)
	}
	return at.decoding(err)
}

// decoding classifies what a decoder of server-sent events says.
func (at endpoint) decoding(err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		return errorf(TooLarge, "the model endpoint %s sent a line that is too long: check that it streams", at)
	}
	if isJSON(err) {
		return at.nonsense(err.Error())
	}
	return err
}
