// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const startCount = 10

// start measures apply to Ready, in turn with a bare pod of as many containers that has what an agent needs of volumes,
// too: the kubelet takes its time over any volume.
func (b *bench) start(ctx context.Context) error {
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare-key"}}
	if err := b.api.Create(ctx, key); err != nil {
		return err
	}
	defer func() { _ = b.api.Delete(context.WithoutCancel(ctx), key) }()
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
	b.add("apply_ready_ratio", percentile(sessions, 50), "ms", "bare pod of the same shape, with a workspace and a Secret", percentile(pods, 50))
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

// sameShape is a pod with a sidecar and two containers that do nothing, a workspace and a Secret.
func (b *bench) sameShape(name string) *corev1.Pod {
	p := b.pod(name, "exec sleep 1000")
	second, sidecar := *p.Spec.Containers[0].DeepCopy(), *p.Spec.Containers[0].DeepCopy()
	second.Name, sidecar.Name = "second", "sidecar"
	always := corev1.ContainerRestartPolicyAlways
	sidecar.RestartPolicy = &always
	p.Spec.Containers = append(p.Spec.Containers, second)
	p.Spec.InitContainers = []corev1.Container{sidecar}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "workspace", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "bare-key"}}},
	}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].VolumeMounts = []corev1.VolumeMount{{Name: "workspace", MountPath: "/workspace"}}
	}
	p.Spec.InitContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "key", MountPath: "/key"}}
	return p
}
