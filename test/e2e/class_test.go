// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A class decides what commands find: their image, within what it allows, their variables, and whether
// the root file system can be written, which opens it to the widest mode and to no other.
func TestAClassDecidesWhatCommandsFind(t *testing.T) {
	s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "s"}}
	image := setup.Image("tools")
	repository, _, _ := strings.Cut(image, ":")
	must(t)(kube.Apply(t.Context(), class("e2e-class", "    tools: "+image+" => "+
		"    tools: agentsession.dev/absent:1\n    allowedTools: ["+repository+"]\n  security: {writableRootFilesystem: true}\n  env: [{name: GREETING, value: \"hello $(HOME)\"}]")))
	t.Cleanup(func() { _, _ = kube.Kubectl(cleanup(t), "delete", "agsc", "e2e-class", "--ignore-not-found") })
	must(t)(kube.Apply(t.Context(), manifest(s.key, "e2e-class", "danger-full-access")+"  toolsImage: "+image+"\n"))
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "wait", "ags/s", "--for=condition=Ready", "--timeout=90s"))

	leave := func(mode string) string {
		s.ask("leave a mark outside")
		r := s.results()
		if len(r) == 0 {
			t.Fatalf("%s: the call has no result", mode)
		}
		return r[len(r)-1]
	}
	if r := leave("danger-full-access"); !strings.Contains(r, "hello $(HOME)") || !strings.Contains(r, "left") {
		t.Errorf("danger-full-access: the result is %q", r)
	}
	for _, mode := range []string{"workspace-write", "read-only"} {
		s.switchTo(mode)
		if r := leave(mode); !strings.Contains(r, "hello $(HOME)") || !strings.Contains(r, "refused") || strings.Contains(r, "left") {
			t.Errorf("%s: the result is %q", mode, r)
		}
	}
	s.verifyLog()
}
