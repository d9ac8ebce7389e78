// SPDX-License-Identifier: Apache-2.0

// Command kubectl is the Kubernetes command line, apart from the servers so
// that it starts quickly.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // credential plugins of kubeconfigs
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// The level must be known before the command is built: building it already
	// reads preferences and looks for plugins, which log.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it as kubectl does, and exits
	}
}
