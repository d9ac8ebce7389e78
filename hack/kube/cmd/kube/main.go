// SPDX-License-Identifier: Apache-2.0

// Command kube is kube-apiserver, kube-controller-manager, kube-scheduler,
// kubelet and kube-proxy in one binary, chosen by the name it is called by.
// Linking them once saves minutes and half a gigabyte; it decides nothing else.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // time zones of CronJobs, on nodes without a zone database

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var apps = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":              proxy.NewProxyCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	app, ok := apps[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s is none of the programs in this binary: call it by a link named kube-apiserver, "+
			"kube-controller-manager, kube-scheduler, kubelet or kube-proxy\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(app()))
}
