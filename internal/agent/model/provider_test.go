// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
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

// A server that a CA of one's own vouches for is trusted once the CA is given.
func TestCABundle(t *testing.T) {
	for _, provider := range model.Providers() {
		t.Run(provider, func(t *testing.T) {
			s := httptest.NewTLSServer(http.HandlerFunc(modeltest.Pieces(streams[provider](model.Answer{Content: "ok", Finish: "stop"})...)))
			t.Cleanup(s.Close)
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			if o := ask(t, provider, model.Config{BaseURL: s.URL, CAFile: ca}); o.Err != nil || o.Answer.Content != "ok" {
				t.Errorf("Send() = %+v", o)
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
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		config model.Config
		want   string
	}{
		"empty":            {model.Config{}, "https://host/v1"},
		"no scheme":        {model.Config{BaseURL: "api.example.com/v1"}, "https://host/v1"},
		"another scheme":   {model.Config{BaseURL: "file:///etc/passwd"}, "https://host/v1"},
		"a password":       {model.Config{BaseURL: "https://u:secret@host/v1"}, "no user"},
		"a query":          {model.Config{BaseURL: "https://host/v1?key=secret"}, "no user, query"},
		"no CA file":       {model.Config{BaseURL: "https://host", CAFile: notPEM + "x"}, "cannot be read"},
		"a CA without PEM": {model.Config{BaseURL: "https://host", CAFile: notPEM}, "no PEM certificate"},
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
