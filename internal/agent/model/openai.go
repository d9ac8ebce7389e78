// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
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

// OpenAIChat is the Provider for any OpenAI-compatible endpoint. The proxy, if
// any, comes from the environment; the SDK's own variables are not read.
type OpenAIChat struct {
	config    OpenAIConfig
	at        endpoint
	transport *http.Transport
}

var _ Provider = (*OpenAIChat)(nil)

// NewOpenAIChat checks the configuration. It does not dial and does not read the key.
func NewOpenAIChat(c OpenAIConfig) (*OpenAIChat, error) {
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errorf(BadRequest, "the model's base URL must be like https://host/v1")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errorf(BadRequest, "the model's base URL must hold no user, query or fragment: the key belongs into a Secret")
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 10*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 2*time.Minute)
	c.TotalTimeout = cmp.Or(c.TotalTimeout, 30*time.Minute)
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		if tlsConfig.RootCAs, err = readCAs(c.CAFile); err != nil {
			return nil, err
		}
	}
	return &OpenAIChat{config: c, at: endpoint(u.String()), transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: c.ConnectTimeout}).DialContext,
		TLSHandshakeTimeout: c.ConnectTimeout,
		TLSClientConfig:     tlsConfig,
		ForceAttemptHTTP2:   true,
		IdleConnTimeout:     90 * time.Second,
		// A stream gains nothing from compression, and a bound on what is read
		// should be a bound on what is unpacked.
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxErrorBody,
	}}, nil
}

func readCAs(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, errorf(BadRequest, "the model's CA bundle %s cannot be read: check that it is mounted", path).detailed(err.Error())
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errorf(BadRequest, "the model's CA bundle %s holds no PEM certificate", path)
	}
	return pool, nil
}

// Close drops idle connections.
func (p *OpenAIChat) Close() { p.transport.CloseIdleConnections() }

// key reads the API key as it is now. Secrets are mounted by a changing symlink,
// so nothing is remembered.
func (p *OpenAIChat) key() (string, error) {
	path := p.config.KeyFile
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", errorf(KeyMissing, "the model's API key cannot be read from %s: check that the Secret that the session names exists and holds the key", path).detailed(err.Error())
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxErrorBody))
	key := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return "", errorf(KeyMissing, "the model's API key cannot be read from %s", path).detailed(err.Error())
	case key == "":
		return "", errorf(KeyMissing, "the model's API key in %s is empty: check the Secret", path)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", errorf(KeyMissing, "the model's API key in %s must be one line of printable ASCII: check the Secret", path)
	}
	return key, nil
}

// Send implements Provider.
func (p *OpenAIChat) Send(ctx context.Context, prepared Prepared) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		key, err := p.key()
		if err != nil {
			yield(Delta{}, err)
			return
		}
		if err := p.send(ctx, prepared, key, yield); err != nil {
			yield(Delta{}, withoutKey(err, key))
		}
	}
}

// send yields the answer; nil means that it is complete or nobody listens any more.
func (p *OpenAIChat) send(caller context.Context, prepared Prepared, key string, yield func(Delta, error) bool) error {
	ctx, cancelTotal := context.WithTimeoutCause(caller, p.config.TotalTimeout,
		errorf(Timeout, "the model endpoint %s did not end its answer within %s", p.at, p.config.TotalTimeout))
	defer cancelTotal()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := newWatchdog(p.config.IdleTimeout, func() {
		cancel(errorf(Timeout, "the model endpoint %s sent nothing for %s: check that it is not overloaded", p.at, p.config.IdleTimeout))
	})
	defer idle.stop()

	resp, err := p.post(ctx, prepared, key, idle)
	if err != nil {
		return p.at.explain(caller, ctx, err, false)
	}
	stream := ssestream.NewStream[openai.ChatCompletionChunk](ssestream.NewDecoder(resp), nil)
	defer stream.Close()
	acc := &accumulator{at: p.at, byIndex: map[int64]*partialCall{}}
	for stream.Next() {
		chunk := stream.Current()
		d, err := acc.add(&chunk)
		if err != nil {
			return err
		}
		if (d.Content != "" || d.Reasoning != "") && !yield(d, nil) {
			return nil
		}
	}
	if err := stream.Err(); err != nil {
		return p.at.explain(caller, ctx, p.streamError(err, prepared.model), true)
	}
	answer, err := acc.answer()
	if err != nil {
		return p.at.explain(caller, ctx, err, true)
	}
	yield(Delta{Answer: answer}, nil)
	return nil
}

// post sends the bytes through the SDK. The client is put together by hand:
// openai.NewClient would take keys, headers and a base URL from the environment.
func (p *OpenAIChat) post(ctx context.Context, prepared Prepared, key string, idle *watchdog) (*http.Response, error) {
	client := openai.Client{Options: []option.RequestOption{
		option.WithBaseURL(p.config.BaseURL),
		option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{
			Transport:     &exchange{at: p.at, next: p.transport, prepared: prepared, idle: idle},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
	}}
	if key != "" {
		client.Options = append(client.Options, option.WithAPIKey(key))
	}
	var resp *http.Response
	if err := client.Post(ctx, "chat/completions", prepared.body, &resp); err != nil {
		return nil, err
	}
	if resp == nil || resp.Body == nil {
		return nil, fmt.Errorf("no response: %w", io.ErrUnexpectedEOF)
	}
	return resp, nil
}

// streamError classifies what the decoder says about the stream's content; what
// it says about the connection is passed on.
func (p *OpenAIChat) streamError(err error, model string) error {
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
		return p.at.byStatus(code, model).detailed(errorText(http.Header{}, said.Event.Data))
	}
	if errors.Is(err, bufio.ErrTooLong) {
		return errorf(TooLarge, "the model endpoint %s sent a line that is too long: check that it streams", p.at)
	}
	if isJSON(err) {
		return errorf(Nonsense, "the model endpoint %s streams something else than chat-completion chunks: check the base URL", p.at).detailed(err.Error())
	}
	return err
}

func isJSON(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind)
}

// withoutKey keeps the key out of errors: endpoints like to repeat it.
func withoutKey(err error, key string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || key == "" {
		return err
	}
	safe := *e
	safe.Message = strings.ReplaceAll(e.Message, key, "[key]")
	safe.Detail = strings.ReplaceAll(e.Detail, key, "[key]")
	return &safe
}
