// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/test/cluster"
)

// session is a session in a restricted namespace of its own.
type session struct {
	t        *testing.T
	key      client.ObjectKey
	messages int
}

func newNamespace(t *testing.T) string {
	t.Helper()
	name := "e2e-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	name = name[:min(len(name), 50)]
	must(t)(kube.Kubectl(t.Context(), "delete", "namespace", name, "--ignore-not-found", "--wait", "--timeout=60s"))
	must(t)(kube.Apply(t.Context(), "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+", labels: {pod-security.kubernetes.io/enforce: restricted}}\n"))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if t.Failed() {
			out, _ := kube.Kubectl(ctx, "-n", name, "describe", "ags,agsm,pods")
			t.Logf("%s", out)
			logs, _ := kube.Kubectl(ctx, "-n", name, "logs", "-l", "app.kubernetes.io/managed-by=agentsession", "--all-containers", "--prefix", "--tail=60")
			t.Logf("%s", logs)
		}
		_, _ = kube.Kubectl(ctx, "delete", "namespace", name, "--wait=false")
	})
	return name
}

// cleanup is a context for what has to be removed after a test.
func cleanup(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newSession applies a session and waits until it is ready.
func newSession(t *testing.T, mode string) *session {
	t.Helper()
	s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "s"}}
	must(t)(kube.Apply(t.Context(), manifest(s.key, model, mode)))
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "wait", "ags/s", "--for=condition=Ready", "--timeout=90s"))
	return s
}

func manifest(key client.ObjectKey, class, mode string) string {
	return fmt.Sprintf("apiVersion: agentsession.dev/v1alpha1\nkind: AgentSession\nmetadata: {name: %s, namespace: %s}\n"+
		"spec:\n  className: %s\n  sandbox: {mode: %s}\n", key.Name, key.Namespace, class, mode)
}

func (s *session) get() *v1alpha1.AgentSession {
	s.t.Helper()
	var got v1alpha1.AgentSession
	if err := api.Get(s.t.Context(), s.key, &got); err != nil {
		s.t.Fatal(err)
	}
	return &got
}

func (s *session) pod() string { return s.get().Status.PodName }

// send creates a message and returns its name.
func (s *session) send(content string) string {
	s.t.Helper()
	s.messages++
	name := fmt.Sprintf("m%d", s.messages)
	must(s.t)(kube.Apply(s.t.Context(), fmt.Sprintf("apiVersion: agentsession.dev/v1alpha1\nkind: SessionMessage\n"+
		"metadata: {name: %s, namespace: %s}\nspec: {sessionName: s, content: %q}\n", name, s.key.Namespace, content)))
	return name
}

// answered waits until a message is answered, and returns it.
func (s *session) answered(name string) *v1alpha1.SessionMessage {
	s.t.Helper()
	var m v1alpha1.SessionMessage
	eventually(s.t, "message "+name+" is answered", func() bool {
		err := api.Get(s.t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: name}, &m)
		return err == nil && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionAnswered)
	})
	return &m
}

func (s *session) ask(content string) *v1alpha1.SessionMessage {
	s.t.Helper()
	return s.answered(s.send(content))
}

// switchTo patches the mode and waits until it is confirmed.
func (s *session) switchTo(mode string) time.Duration {
	s.t.Helper()
	took, err := cluster.Switch(s.t.Context(), api, s.key, func() error {
		return api.Patch(s.t.Context(), &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}},
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"sandbox":{"mode":"`+mode+`"}}}`)))
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return took
}

// event is a line of the event log.
type event struct {
	Seq  uint64         `json:"seq"`
	Type string         `json:"type"`
	Data map[string]any `json:"data"`
}

// log returns the committed events, as the agent's own reader exports them.
func (s *session) log() []event {
	s.t.Helper()
	out := must(s.t)(kube.Kubectl(s.t.Context(), "-n", s.key.Namespace, "exec", s.pod(), "-c", "agent", "--",
		"/usr/local/bin/agent", "log", "export", "/log"))
	var events []event
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			s.t.Fatalf("a line of the log is no JSON: %q", lines.Text())
		}
		if e.Type != "" {
			events = append(events, e)
		}
	}
	return events
}

func (s *session) verifyLog() {
	s.t.Helper()
	must(s.t)(kube.Kubectl(s.t.Context(), "-n", s.key.Namespace, "exec", s.pod(), "-c", "agent", "--", "/usr/local/bin/agent", "log", "verify", "/log"))
}

// results returns the texts of all tool results so far, as the model reads them.
func (s *session) results() []string {
	var texts []string
	for _, e := range s.log() {
		if e.Type == "tool/result" {
			text, _ := e.Data["text"].(string)
			texts = append(texts, text)
		}
	}
	return texts
}

// sh runs a command beside the session's tools, outside of their sandbox.
func (s *session) sh(command string) (string, error) {
	return kube.Kubectl(s.t.Context(), "-n", s.key.Namespace, "exec", s.pod(), "-c", "tools-ro", "--", "bash", "-c", command)
}

func containsAll(s string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s, w) })
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func must(t *testing.T) func(string, error) string {
	return func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}
