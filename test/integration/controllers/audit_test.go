// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers/link"
)

// auditLog is what the apiserver itself says that it was asked to write.
var auditLog string

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, verbs: [get, list, watch]}
  - {level: Metadata}
`

// audit has the apiserver log every write before it answers.
func audit(env *envtest.Environment) (clean func(), err error) {
	dir, err := os.MkdirTemp("", "audit-")
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	auditLog = filepath.Join(dir, "audit.log")
	env.ControlPlane.GetAPIServer().Configure().
		Append("audit-policy-file", policy).Append("audit-log-path", auditLog).Append("audit-log-mode", "blocking-strict")
	return func() { os.RemoveAll(dir) }, nil
}

// audited returns what the operator wrote since an offset into the audit log, and the next offset.
// Events and leases are left out; what the apiserver refused is not.
func (b *bench) audited(from int) (writes []string, next int) {
	b.t.Helper()
	log, err := os.ReadFile(auditLog)
	if err != nil {
		b.t.Fatal(err)
	}
	end := bytes.LastIndexByte(log, '\n') + 1
	for line := range bytes.Lines(log[from:end]) {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Namespace, Resource, Subresource, Name string }
		}
		if err := json.Unmarshal(line, &e); err != nil {
			b.t.Fatalf("a line of the audit log: %v", err)
		}
		if o := e.ObjectRef; e.User.Username == operatorName && o.Namespace == b.name.Namespace && o.Resource != "events" && o.Resource != "leases" {
			writes = append(writes, fmt.Sprintf("%s %s/%s %s", e.Verb, o.Resource, o.Subresource, o.Name))
		}
	}
	return writes, end
}

// readyUnderAudit lets a manager bring a session from its creation to its rest. It returns how often the
// informers have resynced, what was written, and where the audit log goes on.
func (b *bench) readyUnderAudit() (resyncs *atomic.Int64, writes []string, from int) {
	b.t.Helper()
	resyncs = new(atomic.Int64)
	b.serve(func(o *ctrl.Options, l *link.Options) {
		o.Cache.SyncPeriod = new(time.Second)
		l.Linger, l.Visit = 10*time.Millisecond, time.Second
	})
	b.countResyncs(resyncs)
	_, from = b.audited(0)
	b.apply(v1alpha1.ModeReadOnly)
	b.eventually("there is a pod", func() bool { return b.pod() != nil })
	b.start()
	b.eventually("it is ready", func() bool { return b.has("Ready=True/Running") })
	b.rests(resyncs)
	writes, from = b.audited(from)
	return resyncs, writes, from
}

// The promises about writes, as the apiserver counts them, with watches, cache and queue as in the
// operator. Two resyncs of the informers stand for those of ten idle minutes, and two visits of
// the agent at rest, which is visited every ten minutes, for what time alone does.
func TestTheAuditLogCountsTheWrites(t *testing.T) {
	b := newBench(t)
	resyncs, writes, from := b.readyUnderAudit()
	if len(writes) > 6 || len(writes) < 4 { // Secret, pod and two of the status are the least
		t.Errorf("create to Ready took %d writes, want 4 to 6: %q", len(writes), writes)
	}

	b.rests(resyncs)
	writes, from = b.audited(from)
	if len(writes) > 0 {
		t.Errorf("an unchanged world was written to: %q", writes)
	}

	b.patchMode(v1alpha1.ModeWorkspaceWrite)
	b.eventually("the switch is applied", func() bool {
		return b.session().Status.ObservedGeneration == 2 && b.has("ModeApplied=True/Applied")
	})
	b.rests(resyncs)
	if writes, _ = b.audited(from); len(writes) == 0 || len(writes) > 2 {
		t.Errorf("a switch took %d writes, want 1 or 2: %q", len(writes), writes)
	}
}

// countResyncs counts how often the session's pod is told again as it was.
func (b *bench) countResyncs(n *atomic.Int64) {
	b.t.Helper()
	informer, err := b.manager.GetCache().GetInformer(b.t.Context(), &corev1.Pod{})
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = informer.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		p, q := before.(*corev1.Pod), after.(*corev1.Pod)
		if p.ResourceVersion == q.ResourceVersion && p.Namespace == b.name.Namespace {
			n.Add(1)
		}
	}}, time.Second)
	if err != nil {
		b.t.Fatal(err)
	}
}

// rests waits for two resyncs and two visits, each of which tells the agent what is wanted.
func (b *bench) rests(resyncs *atomic.Int64) {
	b.t.Helper()
	r, v := resyncs.Load()+2, len(b.agent.Pushes())+2
	b.eventually("two resyncs and two visits", func() bool { return resyncs.Load() >= r && len(b.agent.Pushes()) >= v })
}
