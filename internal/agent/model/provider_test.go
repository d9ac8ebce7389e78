// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/agent/model"
	"github.com/agentsession-dev/operator/internal/agent/model/modeltest"
)

// streams are how each provider's endpoint answers.
var streams = map[string]func(model.Answer) []string{model.ProviderOpenAIChat: stream, model.ProviderAnthropic: blockStream}

func ask(t *testing.T, provider string, c model.Config) modeltest.Outcome {
	t.Helper()
	p, err := model.New(provider, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	prepared, err := p.Prepare(modeltest.Request())
	if err != nil {
		t.Fatal(err)
	}
	return modeltest.Collect(t.Context(), p, prepared)
}

// A server that an authority of one's own vouches for is trusted once its certificate is given, and
// nobody else is then; without it nothing is sent.
func TestCABundle(t *testing.T) {
	root, other := modeltest.NewRoot(t, "model root"), modeltest.NewRoot(t, "another root")
	for _, provider := range model.Providers() {
		t.Run(provider, func(t *testing.T) {
			asked := 0
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				modeltest.Pieces(streams[provider](model.Answer{Content: "ok", Finish: "stop"})...)(w, r)
			}))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = &tls.Config{Certificates: []tls.Certificate{root.Serves(t)}}
			s.StartTLS()
			t.Cleanup(s.Close)
			for name, bundle := range map[string]string{"the system's": "", "another's": other.PEM} {
				o := ask(t, provider, model.Config{BaseURL: s.URL, CABundle: bundle})
				e, ok := errors.AsType[*model.Error](o.Err)
				if !ok || e.Kind != model.Refused || !strings.Contains(e.Message, "is not trusted") || !strings.Contains(e.Message, "model.caBundle") || asked != 0 {
					t.Errorf("by %s roots Send() = %+v after %d requests", name, o, asked)
				}
			}
			if o := ask(t, provider, model.Config{BaseURL: s.URL, CABundle: other.PEM + root.PEM}); o.Err != nil || o.Answer.Content != "ok" || asked != 1 {
				t.Errorf("Send() = %+v after %d requests", o, asked)
			}
		})
	}
}

// The proxy of the environment is used. Go reads it once for each process, so a
// process of its own asks.
func TestProxy(t *testing.T) {
	const target = "http://model.invalid/v1"
	if provider := os.Getenv("MODEL_TEST_PROXIED"); provider != "" {
		if o := ask(t, provider, model.Config{BaseURL: target}); o.Err != nil {
			t.Fatal(o.Err)
		}
		return
	}
	for _, provider := range model.Providers() {
		s := modeltest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Host != "model.invalid" {
				t.Errorf("%s: the proxy was asked for %s", provider, r.URL)
			}
			modeltest.Pieces(streams[provider](model.Answer{Content: "ok", Finish: "stop"})...)(w, r)
		})
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxy$", "-test.count=1")
		cmd.Env = append(os.Environ(), "MODEL_TEST_PROXIED="+provider, "HTTP_PROXY="+s.URL, "http_proxy="+s.URL, "NO_PROXY=", "no_proxy=")
		if out, err := cmd.CombinedOutput(); err != nil || len(s.Got()) != 1 {
			t.Errorf("%s: %v after %d requests through the proxy:\n%s", provider, err, len(s.Got()), out)
		}
	}
}

// A configuration that cannot work is refused before anything is sent.
func TestConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		config model.Config
		want   string
	}{
		"empty":            {model.Config{}, "https://host/v1"},
		"no scheme":        {model.Config{BaseURL: "api.example.com/v1"}, "https://host/v1"},
		"another scheme":   {model.Config{BaseURL: "file:///etc/passwd"}, "https://host/v1"},
		"a password":       {model.Config{BaseURL: "https://u:secret@host/v1"}, "no user"},
		"a query":          {model.Config{BaseURL: "https://host/v1?key=secret"}, "no user, query"},
		"a CA without PEM": {model.Config{BaseURL: "https://host", CABundle: "hello"}, "no certificate in PEM"},
	} {
		for _, provider := range model.Providers() {
			_, err := model.New(provider, tc.config)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: New(%s) = %v, want %q and no secret in it", name, provider, err, tc.want)
			}
		}
	}
}

// Providers are picked by name, and a wrong one says which there are.
func TestNew(t *testing.T) {
	for _, name := range model.Providers() {
		p, err := model.New(name, model.Config{BaseURL: "https://host.invalid/v1"})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		if kind := fmt.Sprintf("%T", p); !strings.Contains(kind, name) || !model.Known(name) {
			t.Errorf("New(%s) is a %s", name, kind)
		}
		if _, err := model.New(name, model.Config{}); err == nil || !strings.Contains(err.Error(), "https://host/v1") {
			t.Errorf("New(%s) without a base URL = %v", name, err)
		}
	}
	if p, err := model.New("openai", model.Config{BaseURL: "https://host.invalid"}); err == nil || p != nil ||
		!strings.Contains(err.Error(), `"openai"`) || !strings.Contains(err.Error(), "Anthropic, OpenAIChat") {
		t.Errorf("New(openai) = %v, %v; want the names that there are", p, err)
	}
}
