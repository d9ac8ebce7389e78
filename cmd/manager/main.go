// SPDX-License-Identifier: Apache-2.0

// Command manager is the operator: it wires scheme, cache, certificate authority,
// links and the controller, and decides nothing itself.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/controllers"
	"github.com/agentsession-dev/operator/controllers/authority"
	"github.com/agentsession-dev/operator/controllers/link"
	"github.com/agentsession-dev/operator/controllers/podspec"
)

type options struct {
	leaderElect      bool
	probes, metrics  string
	namespace, image string
	labels           map[string]string
	log              zap.Options
}

func parseFlags(args []string, getenv func(string) string) (options, error) {
	var o options
	f := flag.NewFlagSet("manager", flag.ContinueOnError)
	f.BoolVar(&o.leaderElect, "leader-elect", false, "let one of several replicas work at a time")
	f.StringVar(&o.probes, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served")
	f.StringVar(&o.metrics, "metrics-bind-address", "127.0.0.1:8080", "where /metrics is served; 0 for nowhere")
	f.StringVar(&o.namespace, "namespace", getenv("POD_NAMESPACE"), "the operator's own namespace, which keeps its certificate authority (default $POD_NAMESPACE)")
	f.StringVar(&o.image, "agent-image", getenv("AGENT_IMAGE"), "the image with agent and toolbox, for classes that name none (default $AGENT_IMAGE)")
	selector := f.String("operator-labels", "app.kubernetes.io/name=agentsession,app.kubernetes.io/component=manager",
		"labels that the operator's own pods have, separated by commas: where a class has egress, its sessions' NetworkPolicies admit those of --namespace alone")
	o.log.BindFlags(f)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	o.labels, err = labels.ConvertSelectorToLabelsMap(*selector)
	switch {
	case err != nil || len(o.labels) == 0:
		return o, fmt.Errorf("--operator-labels %q are no labels: write them as name=value, separated by commas", *selector)
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: only flags are taken", f.Arg(0))
	case o.namespace == "":
		return o, fmt.Errorf("the operator's namespace is not known: set --namespace or POD_NAMESPACE")
	case o.image == "":
		return o, fmt.Errorf("the agent's image is not known: set --agent-image or AGENT_IMAGE")
	}
	return o, nil
}

func main() {
	o, err := parseFlags(os.Args[1:], os.Getenv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "manager: %v\n", err)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		// What is held is a cache that hardly changes: collecting twice as often costs next to
		// nothing and saves a quarter of the memory.
		debug.SetGCPercent(50)
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.log)))
	// Near 90% of the container's limit the collector works harder: filling the caches after a restart must not end in OOM.
	if _, err := memlimit.Set(); err != nil {
		ctrl.Log.Error(err, "The container's memory limit is not known: set GOMEMLIMIT")
	}
	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		ctrl.Log.Error(err, "Operator stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the apiserver (run in a cluster, or set KUBECONFIG): %w", err)
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme(),
		Cache:                         controllers.CacheOptions(),
		Metrics:                       metricsserver.Options{BindAddress: o.metrics},
		HealthProbeBindAddress:        o.probes,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "agentsession-operator",
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	ca, err := authority.Ensure(ctx, m.GetAPIReader(), m.GetClient(), o.namespace, authority.Options{})
	if err != nil {
		return err
	}
	r := &controllers.SessionReconciler{
		Client:     m.GetClient(),
		Live:       m.GetAPIReader(),
		Authority:  ca,
		Recorder:   m.GetEventRecorder("agentsession-operator"),
		AgentImage: o.image,
		Operator:   podspec.Operator{Namespace: o.namespace, Labels: o.labels},
		Now:        time.Now,
	}
	links := link.New(ctx, link.Options{Credentials: ca, Wake: r.Wake, Failed: controllers.CountLinkError})
	r.Links = links
	if err := controllers.RegisterHeld(links.Held); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := m.Add(&authority.Keeper{
		Authority: ca, Reader: m.GetAPIReader(), Writer: m.GetClient(), Namespace: o.namespace,
		Elected: m.Elected(), InUse: r.AuthoritiesInUse, Changed: r.LookAgain,
	}); err != nil {
		return fmt.Errorf("adding the keeper of the certificate authority: %w", err)
	}
	if err := metrics.Registry.Register(controllers.Census(m.GetCache())); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	if err := r.SetupWithManager(ctx, m); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	if err := probes(m); err != nil {
		return err
	}
	ctrl.Log.Info("Starting", "agentImage", o.image, "namespace", o.namespace, "caHash", ca.Hash())
	return m.Start(ctx)
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// probes answer /healthz always and /readyz once the caches are filled.
func probes(m manager.Manager) error {
	s := &synced{}
	if err := m.Add(s); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the liveness probe: %w", err)
	}
	if err := m.AddReadyzCheck("caches", s.check); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	return nil
}

// synced is started by the manager after it has filled its caches, on every replica.
type synced struct{ done atomic.Bool }

func (s *synced) Start(context.Context) error {
	s.done.Store(true)
	return nil
}

func (*synced) NeedLeaderElection() bool { return false }

func (s *synced) check(*http.Request) error {
	if !s.done.Load() {
		return fmt.Errorf("the caches are not filled yet")
	}
	return nil
}
