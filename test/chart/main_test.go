// SPDX-License-Identifier: Apache-2.0

// Package chart proves the Helm chart with the real helm: what it renders, what it
// refuses, and what installing, upgrading and uninstalling leave in a real apiserver.
package chart

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

const chartDir = "../../charts/agentsession"

var (
	update     = flag.Bool("update", false, "write the golden files anew")
	kubeconfig string
	config     *rest.Config
	api        client.Client
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return 1, errors.New("KUBEBUILDER_ASSETS is not set: these tests need etcd and kube-apiserver. Run `make test` or `make integration`, which build both")
	}
	if _, err := exec.LookPath("helm"); err != nil {
		return 1, fmt.Errorf("these tests need helm on the PATH: run `make test` or `make integration`, which build it (%w)", err)
	}
	ctrllog.SetLogger(logr.Discard())
	env := &envtest.Environment{}
	config, err = env.Start()
	if err != nil {
		return 1, fmt.Errorf("starting etcd and kube-apiserver: %w", err)
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	dir, err := os.MkdirTemp("", "agentsession-chart")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// helm keeps nothing of these runs in the home directory, and takes nothing from it.
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		os.Setenv(name, dir)
	}
	kubeconfig = dir + "/kubeconfig"
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		return 1, err
	}
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return 1, err
	}
	if api, err = client.New(config, client.Options{}); err != nil {
		return 1, fmt.Errorf("connecting to kube-apiserver: %w", err)
	}
	return m.Run(), nil
}

// noticeChanges looks at every file of the chart, so that go test runs again when one
// has changed: it does not see what helm reads.
var noticeChanges = sync.OnceValue(func() error {
	return filepath.WalkDir(chartDir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			_, err = os.Stat(path)
		}
		return err
	})
})

// helm runs helm and returns what it printed; on an error that is in the error too.
func helm(ctx context.Context, args ...string) (string, error) {
	if err := noticeChanges(); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "helm", args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", args[0], err, stderr.String())
	}
	return stdout.String(), nil
}

func mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
