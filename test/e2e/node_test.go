// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"syscall"
	"testing"

	"github.com/agentsession-dev/operator/test/cluster"
)

// kill9 ends the one process of a pod whose command line contains words.
func kill9(t *testing.T, podUID string, words ...string) {
	t.Helper()
	if err := cluster.Signal(podUID, syscall.SIGKILL, words...); err != nil {
		t.Fatal(err)
	}
}

func podUID(t *testing.T, namespace, pod string) string {
	t.Helper()
	return must(t)(kube.Kubectl(t.Context(), "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}"))
}
