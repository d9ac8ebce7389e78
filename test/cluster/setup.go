// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// System is the namespace of the operator.
const System = "agentsession-system"

// Setup says from which images the operator and a scripted model are installed.
type Setup struct {
	Root       string // of the repository
	Repository string
	Tag        string
}

// Image returns the reference of one of the project's images.
func (s Setup) Image(name string) string { return s.Repository + "/" + name + ":" + s.Tag }

// InstallOperator installs or upgrades the operator by its chart.
func (c Cluster) InstallOperator(ctx context.Context, s Setup) error {
	_, err := c.Helm(ctx, "upgrade", "--install", "agentsession", filepath.Join(s.Root, "charts/agentsession"),
		"--namespace", System, "--create-namespace", "--wait", "--timeout", "2m",
		"--values", filepath.Join(s.Root, "hack/demo/values.yaml"), "--set", "image.repository="+s.Repository, "--set", "image.tag="+s.Tag)
	return err
}

// InstallModel starts a replay model with a script in a namespace of its own, and a
// class of the same name that uses it.
func (c Cluster) InstallModel(ctx context.Context, s Setup, name, script string) error {
	manifest, err := os.ReadFile(filepath.Join(s.Root, "hack/demo/manifests/replay-model.yaml"))
	if err != nil {
		return err
	}
	model := strings.NewReplacer("IMAGE", s.Image("replay-model"), "agentsession-demo", name).Replace(string(manifest))
	if _, err := c.Apply(ctx, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n---\n"+
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: replay-script, namespace: "+name+"}\ndata:\n  script.yaml: |\n"+block(script)+
		"---\n"+model+"---\n"+s.Class(name, name)); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "-n", name, "rollout", "restart", "deploy/replay-model"); err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "-n", name, "rollout", "status", "deploy/replay-model", "--timeout=60s")
	return err
}

// Class renders a class that uses the replay model of a namespace.
func (s Setup) Class(name, model string) string {
	return fmt.Sprintf(`apiVersion: agentsession.dev/v1alpha1
kind: AgentSessionClass
metadata:
  name: %s
spec:
  images:
    tools: %s
  model:
    provider: OpenAIChat
    baseURL: http://replay-model.%s.svc:8080/v1
    insecureHTTP: true
    defaultName: replay
  ceiling:
    maxMode: danger-full-access
`, name, s.Image("tools"), model)
}

// block indents a text as a YAML block scalar of a ConfigMap.
func block(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n    ") + "\n"
}
