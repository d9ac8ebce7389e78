// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/internal/policy"
)

const (
	switchCount   = 200
	downwardCount = 10
)

// switches measures patches of an idle session, narrowing and widening in turn,
// beside the two ways in which a pod can otherwise be told something.
func (b *bench) switches(ctx context.Context) error {
	if _, err := b.ready(ctx, "switch"); err != nil {
		return err
	}
	seconds, count, err := b.stages(ctx)
	if err != nil {
		return err
	}
	var took []time.Duration
	var sum time.Duration
	for i := range switchCount {
		d, err := b.switchTo(ctx, "switch", []policy.Mode{policy.WorkspaceWrite, policy.ReadOnly}[i%2])
		if err != nil {
			return err
		}
		took, sum = append(took, d), sum+d
	}
	if err := b.addStages(ctx, seconds, count, float64(sum.Microseconds())/1000/switchCount); err != nil {
		return err
	}
	file, err := b.downwardFile(ctx)
	if err != nil {
		return err
	}
	restart, err := b.restart(ctx)
	if err != nil {
		return err
	}
	b.add("switch_p50_ms", percentile(took, 50), "ms", "downward-API file", file)
	b.add("switch_p50_ms", percentile(took, 50), "ms", "new pod", restart)
	b.add("switch_p99_ms", percentile(took, 99), "ms", "downward-API file", file)
	return nil
}

// downwardFile measures how long an annotation takes to reach a file in a pod, at the median.
func (b *bench) downwardFile(ctx context.Context) (float64, error) {
	p := b.pod("downward", `while true; do v=$(cat /info/mode); [ "$v" = "$o" ] || echo "$v"; o=$v; sleep 0.002; done`)
	p.Annotations = map[string]string{"mode": "start"}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "mode", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['mode']"}}},
	}}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "info", MountPath: "/info"})
	if _, err := b.podReady(ctx, p); err != nil {
		return 0, err
	}
	cfg, err := b.Config()
	if err != nil {
		return 0, err
	}
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return 0, err
	}
	stream, err := set.CoreV1().Pods(namespace).GetLogs(p.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	var took []time.Duration
	for i := range downwardCount {
		want := fmt.Sprintf("mode-%d", i)
		start := time.Now()
		if err := b.api.Patch(ctx, p.DeepCopy(), client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"mode":"`+want+`"}}}`))); err != nil {
			return 0, err
		}
		for lines.Scan() && strings.TrimSpace(lines.Text()) != want {
		}
		took = append(took, time.Since(start))
	}
	return percentile(took, 50), lines.Err()
}

// restart measures deleting a pod of one container and making it again, at the median.
func (b *bench) restart(ctx context.Context) (float64, error) {
	var took []time.Duration
	for range 3 {
		p := b.pod("restart", "exec sleep 1000")
		if _, err := b.podReady(ctx, p); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := b.api.Delete(ctx, p, client.GracePeriodSeconds(1)); err != nil {
			return 0, err
		}
		for b.api.Get(ctx, client.ObjectKeyFromObject(p), &corev1.Pod{}) == nil {
			time.Sleep(5 * time.Millisecond)
		}
		p = b.pod("restart", "exec sleep 1000")
		if _, err := b.podReady(ctx, p); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
		if err := b.api.Delete(ctx, p, client.GracePeriodSeconds(1)); err != nil {
			return 0, err
		}
		for b.api.Get(ctx, client.ObjectKeyFromObject(p), &corev1.Pod{}) == nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	return percentile(took, 50), nil
}

func (b *bench) podReady(ctx context.Context, p *corev1.Pod) (time.Duration, error) {
	return b.until(ctx, &corev1.PodList{}, p, func(o any) bool {
		got, ok := o.(*corev1.Pod)
		return ok && isReady(got)
	})
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// pod is a pod of one container of the tools image, as restricted as a session's.
func (b *bench) pod(name, command string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65533)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "main", Image: b.setup.Image("tools"), Command: []string{"/bin/bash", "-c", command},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
