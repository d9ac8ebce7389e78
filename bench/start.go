// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const startCount = 10

// start measures apply to Ready, in turn with a bare pod of as many containers.
func (b *bench) start(ctx context.Context) error {
	var sessions, pods []time.Duration
	for i := range startCount {
		s, err := b.ready(ctx, fmt.Sprintf("start-%d", i))
		if err != nil {
			return err
		}
		p, err := b.podReady(ctx, b.sameShape(fmt.Sprintf("bare-%d", i)))
		if err != nil {
			return err
		}
		sessions, pods = append(sessions, s), append(pods, p)
	}
	b.add("apply_ready_ratio", percentile(sessions, 50), "ms", "bare pod of the same shape", percentile(pods, 50))
	for i := range startCount {
		if err := b.api.Delete(ctx, b.session(fmt.Sprintf("start-%d", i))); err != nil {
			return err
		}
		if err := b.api.Delete(ctx, b.pod(fmt.Sprintf("bare-%d", i), "")); err != nil {
			return err
		}
	}
	return nil
}

// sameShape is a pod with a sidecar and two containers that do nothing.
func (b *bench) sameShape(name string) *corev1.Pod {
	p := b.pod(name, "exec sleep 1000")
	second, sidecar := *p.Spec.Containers[0].DeepCopy(), *p.Spec.Containers[0].DeepCopy()
	second.Name, sidecar.Name = "second", "sidecar"
	always := corev1.ContainerRestartPolicyAlways
	sidecar.RestartPolicy = &always
	p.Spec.Containers = append(p.Spec.Containers, second)
	p.Spec.InitContainers = []corev1.Container{sidecar}
	return p
}
