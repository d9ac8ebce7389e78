// SPDX-License-Identifier: Apache-2.0

// Package chaos breaks the development cluster for a while, wherever it can be
// broken, under sessions that work, and then asks whether each ended where its
// spec says and whether each message was answered once. It is started by make chaos.
package chaos

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/test/cluster"
)

//go:embed script.yaml
var script string

const (
	root      = "../.."
	system    = cluster.System
	namespace = "agentsession-chaos" // of class, model and sessions
	settled   = 6 * time.Minute      // for everything to be well again: a kubelet waits for up to 5 minutes before it starts a container anew
)

var (
	duration = flag.Duration("chaos.duration", 15*time.Minute, "how long things are broken")
	seed     = flag.Int64("chaos.seed", time.Now().UnixNano(), "what is broken when follows from it")
	state    = flag.String("chaos.state", "", "the state directory of the development cluster, which has the numbers of its processes")

	here  string // where this package is
	kube  = cluster.Cluster{}
	api   client.WithWatch
	setup = cluster.Setup{Root: root, Repository: os.Getenv("E2E_REPOSITORY"), Tag: os.Getenv("E2E_TAG")}
)

func TestMain(m *testing.M) {
	flag.Parse()
	if setup.Repository == "" || setup.Tag == "" || *state == "" {
		fmt.Fprintln(os.Stderr, "this test breaks the development cluster: run it with make chaos")
		os.Exit(1)
	}
	var err error
	if here, err = os.Getwd(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	mendOnSignal()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	err = prepare(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "preparing the cluster:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepare(ctx context.Context) (err error) {
	if api, err = kube.Client(); err != nil {
		return err
	}
	if _, err := kube.Kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found", "--wait", "--timeout=90s"); err != nil {
		return err
	}
	// Of a run that came to no end.
	if _, err := kube.Kubectl(ctx, "delete", "pv", "-l", "chaos=volume", "--wait", "--timeout=30s"); err != nil {
		return err
	}
	if err := removeVolumes(); err != nil {
		return err
	}
	if err := kube.InstallOperator(ctx, setup); err != nil {
		return err
	}
	return kube.InstallModel(ctx, setup, namespace, script)
}
