// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/test/cluster"
)

var demoKey = client.ObjectKey{Namespace: namespace, Name: "demo"}

func (d *demo) steps() []step {
	return []step{
		{"Install the operator", d.install},
		{"A namespace that admits only restricted pods, and a model in it", d.model},
		{"A session that may only read", d.session},
		{"Its write is denied by the kernel, and the model hears of it", d.denied},
		{"Switch to workspace-write while it runs", d.widen},
		{"Asked again, the write lands", d.lands},
		{"Switch back while a command writes every 20 ms", d.narrow},
		{"What was allowed is denied again", d.deniedAgain},
		{"What the two switches cost in prompt tokens", d.tokens},
	}
}

func (d *demo) install(ctx context.Context) error {
	_, err := d.Helm(ctx, "upgrade", "--install", "agentsession", "charts/agentsession",
		"--namespace", system, "--create-namespace", "--wait", "--timeout", "2m",
		"--values", "hack/demo/values.yaml", "--set", "image.repository="+d.repository, "--set", "image.tag="+d.tag)
	return err
}

func (d *demo) model(ctx context.Context) error {
	// A demo begins with nothing left over from the one before.
	if _, err := d.Kubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found", "--wait", "--timeout=60s"); err != nil {
		return err
	}
	if _, err := d.Kubectl(ctx, "create", "namespace", namespace); err != nil {
		return err
	}
	if _, err := d.Kubectl(ctx, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"); err != nil {
		return err
	}
	if _, err := d.Kubectl(ctx, "-n", namespace, "create", "configmap", "replay-script", "--from-file="+dir+"../script.yaml"); err != nil {
		return err
	}
	manifest, err := manifests.ReadFile("manifests/replay-model.yaml")
	if err != nil {
		return err
	}
	fmt.Println("\n$ sed 's|IMAGE|" + d.image("replay-model") + "|' " + dir + "replay-model.yaml | kubectl apply -f -")
	out, err := d.quietly().Apply(ctx, strings.ReplaceAll(string(manifest), "IMAGE", d.image("replay-model")))
	fmt.Print("    " + strings.ReplaceAll(out, "\n", "\n    ") + "\n")
	if err != nil {
		return err
	}
	_, err = d.Kubectl(ctx, "-n", namespace, "rollout", "status", "deploy/replay-model", "--timeout=60s")
	return err
}

func (d *demo) session(ctx context.Context) error {
	if _, err := d.Kubectl(ctx, "apply", "-f", dir+"session.yaml"); err != nil {
		return err
	}
	if _, err := d.Kubectl(ctx, "-n", namespace, "wait", "ags/demo", "--for=condition=Ready", "--timeout=60s"); err != nil {
		return err
	}
	_, err := d.Kubectl(ctx, "-n", namespace, "get", "ags", "-o", "wide")
	return err
}

func (d *demo) denied(ctx context.Context) error {
	if err := d.turnsEnded(ctx, 1); err != nil {
		return err
	}
	for i, by := range []string{"bash", "write"} {
		result, err := d.logEvent(ctx, "tool/result", i+1)
		if err != nil {
			return err
		}
		d.claim(strings.Contains(strings.ToLower(result), "read-only"), "the kernel refused the write by %s, and the model was told so", by)
	}
	_, err := d.file(ctx, "greeting.txt")
	d.claim(err != nil, "greeting.txt does not exist")
	return nil
}

func (d *demo) widen(ctx context.Context) error {
	if err := d.switchTo(ctx, policy.WorkspaceWrite); err != nil {
		return err
	}
	snapshot, err := d.logEvent(ctx, "context/snapshot", 2)
	if err != nil {
		return err
	}
	d.claim(strings.Contains(snapshot, "Sandbox mode: workspace-write."), "one new context snapshot states the new mode")
	return nil
}

func (d *demo) lands(ctx context.Context) error {
	if err := d.ask(ctx, "again"); err != nil {
		return err
	}
	if err := d.turnsEnded(ctx, 2); err != nil {
		return err
	}
	if _, err := d.Kubectl(ctx, "-n", namespace, "get", "agsm"); err != nil {
		return err
	}
	text, err := d.file(ctx, "greeting.txt")
	d.claim(err == nil && strings.Contains(text, "Hello"), "greeting.txt holds what the model wrote: %q", strings.TrimSpace(text))
	return nil
}

func (d *demo) narrow(ctx context.Context) error {
	if err := d.ask(ctx, "ticks"); err != nil {
		return err
	}
	if err := poll(ctx, func() bool { n, err := d.size(ctx, "ticks.log"); return err == nil && n > 0 }); err != nil {
		return fmt.Errorf("waiting for ticks.log to grow: %w", err)
	}
	if err := d.switchTo(ctx, policy.ReadOnly); err != nil {
		return err
	}
	size, err := d.size(ctx, "ticks.log")
	if err != nil {
		return err
	}
	time.Sleep(time.Second) // fifty ticks of the writer, had it lived
	later, err := d.size(ctx, "ticks.log")
	if err != nil {
		return err
	}
	d.claim(size > 0 && later == size, "ticks.log had %d bytes when the switch was confirmed, and %d a second later", size, later)
	if err := d.turnsEnded(ctx, 3); err != nil {
		return err
	}
	result, err := d.logEvent(ctx, "tool/result", 4)
	if err != nil {
		return err
	}
	d.claim(strings.Contains(result, "the sandbox was narrowed"), "the model was told why its command ended")
	return nil
}

func (d *demo) deniedAgain(ctx context.Context) error {
	if err := d.ask(ctx, "once-more"); err != nil {
		return err
	}
	if err := d.turnsEnded(ctx, 4); err != nil {
		return err
	}
	result, err := d.logEvent(ctx, "tool/result", 5)
	if err != nil {
		return err
	}
	d.claim(strings.Contains(strings.ToLower(result), "denied"), "the write that had landed before is denied again")
	_, err = d.Kubectl(ctx, "-n", namespace, "describe", "ags", "demo")
	return err
}

// switchTo patches the mode as a person would, and measures.
func (d *demo) switchTo(ctx context.Context, mode policy.Mode) error {
	took, err := cluster.Switch(ctx, d.client, demoKey, func() error {
		_, err := d.Kubectl(ctx, "-n", namespace, "patch", "ags", "demo", "--type=merge", "-p",
			`{"spec":{"sandbox":{"mode":"`+mode.String()+`"}}}`)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := d.Kubectl(ctx, "-n", namespace, "wait", "ags/demo", "--for=condition=ModeApplied", "--timeout=10s"); err != nil {
		return err
	}
	var s v1alpha1.AgentSession
	if err := d.client.Get(ctx, demoKey, &s); err != nil {
		return err
	}
	d.claim(s.Status.Applied != nil && string(s.Status.Applied.Mode) == mode.String(),
		"%s is in force %.1f ms after the patch", mode, float64(took.Microseconds())/1000)
	return nil
}

func (d *demo) ask(ctx context.Context, message string) error {
	_, err := d.Kubectl(ctx, "apply", "-f", dir+"message-"+message+".yaml")
	return err
}

func (d *demo) image(name string) string {
	return cluster.Setup{Repository: d.repository, Tag: d.tag}.Image(name)
}

func (d *demo) size(ctx context.Context, name string) (int64, error) {
	out, err := d.inWorkspace(ctx, d.quietly(), "stat", "-c", "%s", name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
}

func (d *demo) file(ctx context.Context, name string) (string, error) {
	return d.inWorkspace(ctx, d.Cluster, "cat", name)
}

// inWorkspace looks at the workspace from the read-only container, beside the session's tools.
func (d *demo) inWorkspace(ctx context.Context, c cluster.Cluster, args ...string) (string, error) {
	pod, err := d.pod(ctx)
	if err != nil {
		return "", err
	}
	args[len(args)-1] = "/workspace/" + args[len(args)-1]
	return c.Kubectl(ctx, append([]string{"-n", namespace, "exec", pod, "-c", "tools-ro", "--"}, args...)...)
}

func (d *demo) pod(ctx context.Context) (string, error) {
	var s v1alpha1.AgentSession
	err := d.client.Get(ctx, demoKey, &s)
	return s.Status.PodName, err
}
