// SPDX-License-Identifier: Apache-2.0

// Package e2e proves the main job on a real cluster, with a real kubelet and a
// real kernel. It expects the development cluster, with images loaded: make e2e.
package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/test/cluster"
)

//go:embed script.yaml
var script string

const (
	root   = "../.."
	system = cluster.System
	model  = "agentsession-e2e" // class, and namespace of its model
)

var (
	kube  = cluster.Cluster{Context: os.Getenv("E2E_CONTEXT")}
	api   client.WithWatch
	setup = cluster.Setup{Root: root, Repository: os.Getenv("E2E_REPOSITORY"), Tag: os.Getenv("E2E_TAG")}
)

func TestMain(m *testing.M) {
	if setup.Repository == "" || setup.Tag == "" {
		fmt.Fprintln(os.Stderr, "these tests need a cluster with the images loaded: run them with make e2e")
		os.Exit(1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	err := prepare(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "preparing the cluster:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// prepare installs the operator as the demo does, and the model with the script of these tests.
func prepare(ctx context.Context) (err error) {
	if api, err = kube.Client(); err != nil {
		return err
	}
	if err := kube.InstallOperator(ctx, setup); err != nil {
		return err
	}
	return kube.InstallModel(ctx, setup, model, script)
}

// class renders a class whose model is the scripted one; change ("old => new") replaces a part of it.
func class(name, change string) string {
	c := setup.Class(name, model)
	old, replacement, ok := strings.Cut(change, " => ")
	if !ok || !strings.Contains(c, old) {
		panic("the class has no " + old)
	}
	return strings.Replace(c, old, replacement, 1)
}
