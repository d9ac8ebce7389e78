// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers"
	"github.com/agentsession-dev/operator/controllers/authority"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/controllers/podspec"
	"github.com/agentsession-dev/operator/test/integration/controllers/agenttest"
)

type zapLeveler = zapcore.Level

const (
	levelAll  = zapcore.DebugLevel
	levelNone = zapcore.FatalLevel
)

// bench is one session in a namespace and a class of its own, the reconciler that is
// stepped, and the agent that its links reach.
type bench struct {
	t       *testing.T
	name    types.NamespacedName
	class   *v1alpha1.AgentSessionClass
	r       *controllers.SessionReconciler
	writes  atomic.Int64
	written []string // what they were
	ca      *authority.Authority
	managed func(ctrl.Manager, *controllers.SessionReconciler) error // adds to a manager; nil adds nothing
	woken   chan struct{}
	manager ctrl.Manager // of serve

	mu    sync.Mutex
	agent *agenttest.Agent
}

var namespaces atomic.Int64

// itself is how the operator is told which pods are its own.
var itself = podspec.Operator{Namespace: "agentsession-system", Labels: map[string]string{"app.kubernetes.io/component": "manager"}}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, ca: ca, woken: make(chan struct{}, 1000)}
	b.name = types.NamespacedName{Namespace: fmt.Sprintf("ns-%d", namespaces.Add(1)), Name: "fix-build"}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.name.Namespace}})
	b.class = &v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: "class-" + b.name.Namespace}}
	b.class.Spec = v1alpha1.AgentSessionClassSpec{
		Images:       v1alpha1.Images{Tools: "tools:1"},
		Model:        v1alpha1.Model{Provider: v1alpha1.ProviderOpenAIChat, BaseURL: "https://model.example/v1", DefaultName: "replay"},
		SystemPrompt: "You are careful.",
		Ceiling:      v1alpha1.Ceiling{MaxMode: v1alpha1.ModeDangerFullAccess},
	}
	b.create(b.class)
	t.Cleanup(func() { _ = admin.Delete(context.Background(), b.class) })

	b.restart()
	return b
}

// restart gives the bench a controller that knows nothing, as after a crash.
func (b *bench) restart() {
	b.t.Helper()
	if b.r != nil {
		b.r.Links.Forget(b.name)
	}
	direct, err := client.NewWithWatch(operator, client.Options{Scheme: scheme})
	if err != nil {
		b.t.Fatal(err)
	}
	b.r = &controllers.SessionReconciler{
		Client: b.counting(direct), Live: direct, Authority: b.ca, AgentImage: "agent:1", Operator: itself,
		Recorder: events.NewFakeRecorder(1000), Now: time.Now,
	}
	b.r.Links = link.New(b.t.Context(), link.Options{
		Credentials: b.ca,
		Wake:        func(types.NamespacedName) { b.woken <- struct{}{} },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			b.mu.Lock()
			agent := b.agent
			b.mu.Unlock()
			if agent == nil {
				return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
			}
			return new(net.Dialer).DialContext(ctx, network, agent.Addr)
		},
	})
}

// counting counts every write that the operator tries.
func (b *bench) counting(c client.WithWatch) client.Client {
	count := func(what string, o client.Object) {
		b.writes.Add(1)
		b.written = append(b.written, fmt.Sprintf("%s %T %s", what, o, o.GetName()))
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			count("create", o)
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			count("delete", o)
			return c.Delete(ctx, o, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			b.writes.Add(1)
			b.written = append(b.written, fmt.Sprintf("apply %T", o))
			return c.Apply(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			count("patch", o)
			return c.Patch(ctx, o, p, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			count("update", o)
			return c.Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			count("patch "+sub+" of", o)
			err := c.SubResource(sub).Patch(ctx, o, p, opts...)
			if err == nil {
				remember(o)
			}
			return err
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			count("update "+sub+" of", o)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	})
}

func (b *bench) create(o client.Object) {
	b.t.Helper()
	if err := admin.Create(b.t.Context(), o); err != nil {
		b.t.Fatalf("creating %T: %v", o, err)
	}
}

// apply creates the session in a mode.
func (b *bench) apply(mode v1alpha1.SandboxMode) {
	b.t.Helper()
	s := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: b.name.Name}}
	s.Spec.ClassName = b.class.Name
	s.Spec.Sandbox.Mode = mode
	s.Spec.Prompt = "Fix the build."
	b.create(s)
}

// patchMode does what kubectl patch does.
func (b *bench) patchMode(mode v1alpha1.SandboxMode) {
	b.t.Helper()
	s := b.session()
	p := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"sandbox":{"mode":%q}}}`, mode))
	if err := admin.Patch(b.t.Context(), s, p); err != nil {
		b.t.Fatalf("patching the mode: %v", err)
	}
}

func (b *bench) session() *v1alpha1.AgentSession {
	b.t.Helper()
	var s v1alpha1.AgentSession
	if err := admin.Get(b.t.Context(), b.name, &s); err != nil {
		b.t.Fatalf("reading the session: %v", err)
	}
	return &s
}

// pod returns the session's pod; nil when there is none.
func (b *bench) pod() *corev1.Pod {
	b.t.Helper()
	var p corev1.Pod
	err := admin.Get(b.t.Context(), types.NamespacedName{Namespace: b.name.Namespace, Name: podspec.PodName(b.session())}, &p)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatalf("reading the pod: %v", err)
	}
	if err != nil {
		return nil
	}
	return &p
}

func (b *bench) secrets() []corev1.Secret {
	b.t.Helper()
	var list corev1.SecretList
	if err := admin.List(b.t.Context(), &list, client.InNamespace(b.name.Namespace)); err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

// step reconciles once.
func (b *bench) step() reconcile.Result {
	b.t.Helper()
	result, err := b.r.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: b.name})
	if err != nil {
		b.t.Fatalf("reconcile: %v", err)
	}
	return result
}

// until steps until a condition is as wanted, each time that the agent wakes the
// session. Nothing but the agent's answers moves it on.
func (b *bench) until(want string) {
	b.t.Helper()
	for {
		b.step()
		if b.has(want) {
			return
		}
		select {
		case <-b.woken:
		case <-time.After(20 * time.Second):
			b.t.Fatalf("not %s; conditions:\n%s", want, b.conditions())
		}
	}
}

// has reports whether the session has a condition, written Type=Status/Reason.
func (b *bench) has(want string) bool {
	b.t.Helper()
	return strings.Contains("\n"+b.conditions(), "\n"+want+" ")
}

func (b *bench) wants(conditions ...string) {
	b.t.Helper()
	for _, c := range conditions {
		if !b.has(c) {
			b.t.Errorf("not %s; conditions:\n%s", c, b.conditions())
		}
	}
}

func (b *bench) conditions() string {
	b.t.Helper()
	return describe(b.session().Status.Conditions)
}

func describe(conditions []metav1.Condition) string {
	var text strings.Builder
	for _, c := range conditions {
		fmt.Fprintf(&text, "%s=%s/%s (generation %d) %s\n", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)
	}
	return text.String()
}

// start does what the kubelet does with the session's pod, and starts its agent.
func (b *bench) start() {
	b.t.Helper()
	p := b.pod()
	if p == nil {
		b.t.Fatalf("there is no pod; conditions:\n%s", b.conditions())
	}
	var incarnation string
	for i, a := range p.Spec.InitContainers[0].Args {
		if a == "--incarnation" {
			incarnation = p.Spec.InitContainers[0].Args[i+1]
		}
	}
	var s corev1.Secret
	key := types.NamespacedName{Namespace: p.Namespace, Name: podspec.LinkSecretName(b.session(), incarnation)}
	if err := admin.Get(b.t.Context(), key, &s); err != nil {
		b.t.Fatalf("reading the link Secret: %v", err)
	}
	agent := agenttest.Start(b.t, agenttest.Identity{SessionUID: string(b.session().UID), Incarnation: incarnation, PodUID: string(p.UID)}, s.Data)
	b.mu.Lock()
	b.agent = agent
	b.mu.Unlock()
	b.setPod(func(p *corev1.Pod) {
		run := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0.9"
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.9"}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: podspec.AgentContainer, State: run}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "tools-ro", State: run}, {Name: "tools-rw", State: run}}
	})
}

func (b *bench) setPod(change func(*corev1.Pod)) {
	b.t.Helper()
	p := b.pod()
	change(p)
	if err := admin.Status().Update(b.t.Context(), p); err != nil {
		b.t.Fatalf("setting the pod's status: %v", err)
	}
}

// ready brings the session to Ready.
func (b *bench) ready(mode v1alpha1.SandboxMode) {
	b.t.Helper()
	b.apply(mode)
	b.step()
	b.start()
	b.until("Ready=True/Running")
}

// quiet drains the wakes that are under way and checks that steps write nothing.
func (b *bench) quiet() {
	b.t.Helper()
	before, n := b.writes.Load(), len(b.written)
	for range 3 {
		b.step()
	}
	if now := b.writes.Load(); now != before {
		b.t.Errorf("an unchanged world caused writes: %q", b.written[n:])
	}
}

func (b *bench) say(name, content string) *v1alpha1.SessionMessage {
	b.t.Helper()
	m := &v1alpha1.SessionMessage{ObjectMeta: metav1.ObjectMeta{Namespace: b.name.Namespace, Name: name}}
	m.Spec.SessionName, m.Spec.Content = b.name.Name, content
	b.create(m)
	return m
}

// refresh reads a message again and reports a condition of it as Status/Reason.
func (b *bench) refresh(m *v1alpha1.SessionMessage, condition string) string {
	b.t.Helper()
	if err := admin.Get(b.t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		b.t.Fatalf("reading the message: %v", err)
	}
	c := meta.FindStatusCondition(m.Status.Conditions, condition)
	if c == nil {
		return "none"
	}
	return string(c.Status) + "/" + c.Reason
}
