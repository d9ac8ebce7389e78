// SPDX-License-Identifier: Apache-2.0

// Command containerd-shim-runc-v2 stands between containerd and runc, one
// process a pod: it is kept small because each pod starts it twice.
package main

import (
	"context"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task/plugin" // its one service
	"github.com/containerd/containerd/v2/pkg/shim"
)

func main() {
	shim.Run(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}
