// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/test/cluster"
)

// onVolume applies a session in workspace-write whose class has a volume that outlives
// pods, and waits until it is ready.
func onVolume(t *testing.T, retention, source string) *session {
	t.Helper()
	s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "s"}}
	name := volume(t, s.key.Namespace)
	must(t)(kube.Apply(t.Context(), class(name, "  ceiling: => "+fmt.Sprintf(
		"  storage: {type: PersistentVolumeClaim, storageClassName: %s, size: 64Mi, retention: %s}\n  ceiling:", name, retention))))
	t.Cleanup(func() { _, _ = kube.Kubectl(cleanup(t), "delete", "agsc", name, "--ignore-not-found") })
	if source != "" {
		source = "  workspace: {source: " + source + "}\n"
	}
	must(t)(kube.Apply(t.Context(), manifest(s.key, name, "workspace-write")+source))
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "wait", "ags/s", "--for=condition=Ready", "--timeout=90s"))
	return s
}

// volume makes a directory of this machine, which is the node, into a volume of a storage
// class of its own.
func volume(t *testing.T, name string) string {
	t.Helper()
	node := must(t)(kube.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"))
	dir, err := os.MkdirTemp("", "e2e-volume") //nolint:usetesting // other users go there; into t.TempDir only its owner may
	if err != nil {
		t.Fatal(err)
	}
	must(t)(kube.Kubectl(t.Context(), "delete", "pv", name, "--ignore-not-found"))
	must(t)(kube.Apply(t.Context(), fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: %s
  local: {path: %s}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}
`, name, name, dir, node)))
	t.Cleanup(func() {
		_, _ = kube.Kubectl(cleanup(t), "delete", "pv", name, "--wait=false")
		_ = os.RemoveAll(dir)
	})
	return name
}

// gitServer serves a repository by files alone, from the tools image, and returns its URL.
func gitServer(t *testing.T) string {
	t.Helper()
	must(t)(kube.Apply(t.Context(), `apiVersion: v1
kind: Pod
metadata: {name: git, namespace: `+model+`, labels: {app: git}}
spec:
  containers:
    - name: git
      image: `+setup.Image("tools")+`
      env: [{name: HOME, value: /tmp}]
      command: [bash, -ec]
      args:
        - |
          cd /tmp; git init -q -b main work; cd work
          echo from the repository > README
          git add README; git -c user.name=a -c user.email=a@example.com commit -q -m one
          git clone -q --bare . /tmp/served/project.git; git -C /tmp/served/project.git update-server-info
          exec python3 -m http.server --directory /tmp/served 8080
---
apiVersion: v1
kind: Service
metadata: {name: git, namespace: `+model+`}
spec: {selector: {app: git}, ports: [{port: 8080}]}
`))
	t.Cleanup(func() { _, _ = kube.Kubectl(cleanup(t), "-n", model, "delete", "pod/git", "svc/git", "--wait=false") })
	must(t)(kube.Kubectl(t.Context(), "-n", model, "wait", "pod/git", "--for=condition=Ready", "--timeout=60s"))
	return "http://git." + model + ".svc:8080/project.git"
}

func (s *session) patch(spec string) {
	s.t.Helper()
	must(s.t)(kube.Kubectl(s.t.Context(), "-n", s.key.Namespace, "patch", "ags/s", "--type=merge", "-p", `{"spec":`+spec+`}`))
}

func (s *session) wait(what string) {
	s.t.Helper()
	must(s.t)(kube.Kubectl(s.t.Context(), "-n", s.key.Namespace, "wait", "ags/s", "--for="+what, "--timeout=60s"))
}

// received counts how often the log has a message.
func (s *session) received(uid string) (n int) {
	for _, e := range s.log() {
		if e.Type == "message/received" && e.Data["uid"] == uid {
			n++
		}
	}
	return n
}

// Suspended, a session has no pod; resumed, it has its history, its workspace as it
// was left, and each message once. Its repository is fetched a single time.
func TestSuspendAndResumeOnAVolume(t *testing.T) {
	s := onVolume(t, "Delete", "{type: Git, git: {url: \""+gitServer(t)+"\", ref: main}}")
	if readme := must(t)(s.sh("cat /workspace/README")); readme != "from the repository\n" {
		t.Errorf("README is %q", readme)
	}
	s.ask("seed the workspace")
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "exec", s.pod(), "-c", "tools-rw", "--", "bash", "-c", "echo changed > /workspace/README"))
	first, events := s.pod(), len(s.log())

	s.patch(`{"suspend":true}`)
	s.wait("condition=Suspended")
	if out := must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "get", "pods", "-o", "name")); out != "" || first == "" {
		t.Errorf("a suspended session has the pod %q", out)
	}
	if got := s.get(); !cluster.Is(got, v1alpha1.ConditionReady, metav1.ConditionTrue) || got.Status.Log == nil {
		t.Errorf("suspended, its status is %+v", got.Status)
	}
	m := s.send("say something")

	s.patch(`{"suspend":false}`)
	if got := s.answered(m); got.Status.Reply != "something" {
		t.Errorf("the message that came meanwhile is answered with %q", got.Status.Reply)
	} else if n := s.received(string(got.UID)); n != 1 {
		t.Errorf("the log has it %d times", n)
	}
	s.wait("condition=Ready")
	s.verifyLog()
	if n := len(s.log()); n <= events {
		t.Errorf("the log has %d events, and had %d before", n, events)
	}
	if out := must(t)(s.sh("cat /workspace/README /workspace/seed")); out != "changed\nseed\n" {
		t.Errorf("the workspace holds %q", out)
	}
	if out := must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "logs", s.pod(), "-c", "workspace")); !strings.Contains(out, "has been fetched before") {
		t.Errorf("the second fetch said %q", out)
	}

	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "delete", "ags/s", "--timeout=60s"))
	eventually(t, "the claim is deleted with its session", func() bool { return s.claims() == "" })
}

func (s *session) claims() string {
	s.t.Helper()
	return must(s.t)(kube.Kubectl(s.t.Context(), "-n", s.key.Namespace, "get", "pvc", "-o", "name"))
}

func TestARetainedVolumeStaysWithItsLog(t *testing.T) {
	s := onVolume(t, "Retain", "")
	s.ask("seed the workspace")
	claim := s.claims()
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "delete", "ags/s", "--timeout=60s"))
	eventually(t, "the pod is gone", func() bool {
		return must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "get", "pods", "-o", "name")) == ""
	})
	if got := s.claims(); got != claim || claim == "" {
		t.Errorf("the claims are %q, and were %q", got, claim)
	}
}

func TestASourceFromAConfigMap(t *testing.T) {
	s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "s"}}
	source := "  workspace: {source: {type: ConfigMap, configMap: {name: inputs}}}\n"
	must(t)(kube.Apply(t.Context(), manifest(s.key, model, "read-only")+source))
	s.wait("jsonpath={.status.conditions[?(@.type==\"Stalled\")].reason}=SourceFailed")
	if out := must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "describe", "ags/s")); !strings.Contains(out, "the ConfigMap inputs does not exist") {
		t.Errorf("nobody says what is missing:\n%s", out)
	}
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "create", "configmap", "inputs", "--from-literal=a.txt=hello", "--from-literal=b.sh=exit"))
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "delete", "ags/s"))
	must(t)(kube.Apply(t.Context(), manifest(s.key, model, "read-only")+source))
	s.wait("condition=Ready")
	if out := must(t)(s.sh("cd /workspace && cat a.txt && ls -A && test ! -L a.txt && ls -d /source* 2>&1 || true")); !strings.HasPrefix(out, "helloa.txt\nb.sh\n") || !strings.Contains(out, "cannot access") {
		t.Errorf("the workspace holds %q", out)
	}
}
