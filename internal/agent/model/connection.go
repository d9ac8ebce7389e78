// SPDX-License-Identifier: Apache-2.0

package model

import (
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
)

// connection is what every provider does alike: the key, the time-outs, the
// transport, and what an error becomes. The proxy, if any, comes from the
// environment; the SDKs' own variables are not read.
type connection struct {
	config    Config
	at        endpoint
	transport *http.Transport
	dialect   dialect
}

// dialect is what an endpoint speaks, above HTTP and below the Answer.
type dialect interface {
	// post sends the body through the provider's SDK and client.
	post(ctx context.Context, call call) (*http.Response, error)
	// read yields what comes. No answer and no error mean that nobody listens any more.
	read(resp *http.Response, at endpoint, model string, yield func(Delta) bool) (*Answer, error)
}

// call is one request as a dialect posts it.
type call struct {
	baseURL, key string
	client       *http.Client
	body         []byte
}

func newConnection(c Config, api, path string, d dialect) (*connection, error) {
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
	if c.CABundle != "" {
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM([]byte(c.CABundle)) {
			return nil, errorf(BadRequest, "the CA bundle for the model endpoint %s holds no certificate in PEM: correct the class's model.caBundle", u)
		}
	}
	return &connection{config: c, at: endpoint{url: u.String(), api: api, path: path}, dialect: d, transport: &http.Transport{
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

// Close drops idle connections.
func (c *connection) Close() { c.transport.CloseIdleConnections() }

// key reads the API key as it is now. Secrets are mounted by a changing symlink,
// so nothing is remembered.
func (c *connection) key() (string, error) {
	path := c.config.KeyFile
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
	if c.config.KeyRead != nil {
		c.config.KeyRead(key)
	}
	return key, nil
}

// Send implements Provider.
func (c *connection) Send(ctx context.Context, prepared Prepared) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		key, err := c.key()
		if err != nil {
			yield(Delta{}, err)
			return
		}
		if err := c.send(ctx, prepared, key, yield); err != nil {
			yield(Delta{}, withoutKey(err, key))
		}
	}
}

// send yields the answer; nil means that it is complete or nobody listens any more.
func (c *connection) send(caller context.Context, prepared Prepared, key string, yield func(Delta, error) bool) error {
	ctx, cancelTotal := context.WithTimeoutCause(caller, c.config.TotalTimeout,
		errorf(Timeout, "the model endpoint %s did not end its answer within %s", c.at, c.config.TotalTimeout))
	defer cancelTotal()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := newWatchdog(c.config.IdleTimeout, func() {
		cancel(errorf(Timeout, "the model endpoint %s sent nothing for %s: check that it is not overloaded", c.at, c.config.IdleTimeout))
	})
	defer idle.stop()

	resp, err := c.dialect.post(ctx, call{baseURL: c.config.BaseURL, key: key, body: prepared.body, client: &http.Client{
		Transport:     &exchange{at: c.at, next: c.transport, prepared: prepared, idle: idle},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err == nil && (resp == nil || resp.Body == nil) {
		err = fmt.Errorf("no response: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		return c.at.explain(caller, ctx, err, false)
	}
	defer resp.Body.Close()
	answer, err := c.dialect.read(resp, c.at, prepared.model, func(d Delta) bool { return yield(d, nil) })
	if err != nil {
		return c.at.explain(caller, ctx, err, true)
	}
	if answer != nil {
		yield(Delta{Answer: answer}, nil)
	}
	return nil
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
