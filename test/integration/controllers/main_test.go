// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/config"
	"github.com/agentsession-dev/operator/controllers/authority"
)

// What all tests share: one apiserver. Each test has a namespace of its own.
var (
	scheme   = runtime.NewScheme()
	admin    client.Client // of the test
	direct   *rest.Config  // of the test
	operator *rest.Config  // with the operator's rights alone
	ca       *authority.Authority
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return 1, fmt.Errorf("these tests need an apiserver and etcd: run `make test`, or set KUBEBUILDER_ASSETS to the directory with both")
	}
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.UseDevMode(true), zap.Level(zapLevel())))
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	crds, err := config.Definitions()
	if err != nil {
		return 1, err
	}
	env := &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: crds}}
	// As on OpenShift: who sets an owner that blocks deletion must be allowed to.
	env.ControlPlane.GetAPIServer().Configure().Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	clean, err := audit(env)
	if err != nil {
		return 1, err
	}
	defer clean()
	base, err := env.Start()
	if err != nil {
		return 1, fmt.Errorf("starting the apiserver: %w", err)
	}
	direct = base
	defer env.Stop()
	if admin, err = client.New(base, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	user, err := env.AddUser(envtest.User{Name: operatorName}, nil)
	if err != nil {
		return 1, fmt.Errorf("adding the operator's user: %w", err)
	}
	operator = user.Config()
	operator.QPS = -1 // as of the operator itself
	if err := setUp(); err != nil {
		return 1, err
	}
	if code := m.Run(); code != 0 {
		return code, nil
	}
	return 0, unreached()
}

const operatorName = "operator"

func zapLevel() zapLeveler {
	if os.Getenv("OPERATOR_LOG") != "" {
		return levelAll
	}
	return levelNone
}
