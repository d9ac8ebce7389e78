// SPDX-License-Identifier: Apache-2.0

// Package cluster is how the demo, the end-to-end tests and the benchmarks
// speak to a Kubernetes: kubectl and helm as a person would use them, and a typed
// client for what has to be measured. It knows no session in particular.
package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// Cluster is a Kubernetes that a kubeconfig leads to.
type Cluster struct {
	Context string    // of the kubeconfig; empty: the current one
	Echo    io.Writer // where commands and answers are shown; nil: nowhere
}

// Kubectl runs kubectl and returns what it printed on standard output.
func (c Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", "kubectl", args...)
}

// Feed runs kubectl with a standard input.
func (c Cluster) Feed(ctx context.Context, stdin string, args ...string) (string, error) {
	return c.run(ctx, stdin, "kubectl", args...)
}

// Apply runs kubectl apply on a manifest given as text.
func (c Cluster) Apply(ctx context.Context, manifest string) (string, error) {
	return c.run(ctx, manifest, "kubectl", "apply", "-f", "-")
}

// Helm runs helm and returns what it printed on standard output.
func (c Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", "helm", args...)
}

func (c Cluster) run(ctx context.Context, stdin, program string, args ...string) (string, error) {
	if c.Echo != nil {
		fmt.Fprintf(c.Echo, "\n$ %s\n", quoted(program, args))
	}
	if c.Context != "" {
		flag := map[string]string{"kubectl": "--context", "helm": "--kube-context"}[program]
		args = append([]string{flag, c.Context}, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if c.Echo != nil {
		fmt.Fprint(c.Echo, indent(out.String()+errs.String()))
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is not in PATH: start this through make, which builds it", program)
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", quoted(program, args), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Config returns the REST configuration of the cluster.
func (c Cluster) Config() (*rest.Config, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(),
		&clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst = 200, 400
	return cfg, nil
}

// Client returns a typed client that knows sessions and can watch.
func (c Cluster) Client() (client.WithWatch, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(cfg, client.Options{Scheme: Scheme()})
}

// Scheme knows the kinds of Kubernetes and of this project.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two kinds of one name: a fault of this program
		}
	}
	return s
}

func quoted(program string, args []string) string {
	words := []string{program}
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " {}[]'\"$*?|&;<>()\n") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

func indent(s string) string {
	if s = strings.TrimRight(s, "\n"); s == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(s, "\n", "\n    ") + "\n"
}
