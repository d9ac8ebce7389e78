// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/config"
	"github.com/agentsession-dev/operator/internal/wire"
	"github.com/agentsession-dev/operator/test/integration/controllers/agenttest"
)

const (
	operatorNamespace = "agentsession-system"
	operatorUser      = "operator"
	// podAddress is every pod's: one process answers for all agents.
	podAddress = "127.0.77.1"
)

// auditPolicy logs what the operator writes, by name alone.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: [operator]
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
`

// world is an apiserver, the operator, and this process as kubelet and agents.
type world struct {
	o       options
	dir     string
	env     *envtest.Environment
	admin   *rest.Config
	api     client.WithWatch
	fleet   *agenttest.Fleet
	sight   *sight
	metrics string
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	manager *exec.Cmd
	cpu     float64 // of operators that ended
}

func start(ctx context.Context, dir string, o options) (w *world, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return nil, fmt.Errorf("an apiserver and etcd are needed: run `make scale`, or set KUBEBUILDER_ASSETS to the directory with both")
	}
	ctx, cancel := context.WithCancel(ctx)
	w = &world{o: o, dir: dir, cancel: cancel, fleet: &agenttest.Fleet{}, env: &envtest.Environment{}}
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	if w.env.CRDInstallOptions.CRDs, err = config.Definitions(); err != nil {
		return w, err
	}
	policy := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return w, err
	}
	w.env.ControlPlane.GetAPIServer().Configure().Append("audit-policy-file", policy).Append("audit-log-path", w.auditLog())
	if w.admin, err = w.env.Start(); err != nil {
		return w, fmt.Errorf("starting the apiserver: %w", err)
	}
	w.admin.QPS = -1
	if w.api, err = client.NewWithWatch(w.admin, client.Options{Scheme: scheme()}); err != nil {
		return w, err
	}
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", podAddress, wire.Port))
	if err != nil {
		return w, err
	}
	w.wg.Go(func() { _ = w.fleet.Serve(l) })
	if err := w.prepare(ctx); err != nil {
		return w, err
	}
	if w.sight, err = w.watch(ctx); err != nil {
		return w, err
	}
	return w, w.build(ctx)
}

func (w *world) auditLog() string { return filepath.Join(w.dir, "audit.log") }

func (w *world) stop() {
	w.stopOperator()
	w.cancel()
	w.fleet.Stop()
	w.wg.Wait()
	_ = w.env.Stop()
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = clientgoscheme.AddToScheme(s)
	_ = v1alpha1.AddToScheme(s)
	return s
}

// prepare makes namespaces and the class.
func (w *world) prepare(ctx context.Context) error {
	names := []string{operatorNamespace}
	for i := range w.o.namespace {
		names = append(names, namespaceOf(i))
	}
	for _, n := range names {
		if err := w.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}}); err != nil {
			return err
		}
	}
	class := &v1alpha1.AgentSessionClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}}
	class.Spec = v1alpha1.AgentSessionClassSpec{
		Images:       v1alpha1.Images{Tools: "tools:1"},
		Model:        v1alpha1.Model{Provider: v1alpha1.ProviderOpenAIChat, BaseURL: "https://model.example/v1", DefaultName: "replay"},
		SystemPrompt: "You are careful.",
		Ceiling:      v1alpha1.Ceiling{MaxMode: v1alpha1.ModeDangerFullAccess},
	}
	return w.api.Create(ctx, class)
}

func namespaceOf(i int) string { return fmt.Sprintf("team-%d", i) }

// eventually looks again until it is so.
func eventually(ctx context.Context, what string, so func() bool) error {
	deadline := time.Now().Add(20 * time.Minute)
	for !so() {
		if time.Now().After(deadline) {
			return fmt.Errorf("it never happened that %s", what)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
