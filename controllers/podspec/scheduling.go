// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// scheduled is the pod's part of where it runs, and in which kind of runtime. What a class
// leaves unset stays unset: the cluster's defaults are the apiserver's to fill in.
func scheduled(in Input, spec *corev1ac.PodSpecApplyConfiguration) *corev1ac.PodSpecApplyConfiguration {
	class := in.Class.Spec
	if class.RuntimeClassName != "" {
		spec.WithRuntimeClassName(class.RuntimeClassName)
	}
	s := class.Scheduling
	if s.PriorityClassName != "" {
		spec.WithPriorityClassName(s.PriorityClassName)
	}
	for key, value := range s.NodeSelector {
		spec.WithNodeSelector(map[string]string{key: string(value)})
	}
	for _, t := range s.Tolerations {
		spec.WithTolerations(inPod[corev1ac.TolerationApplyConfiguration](t))
	}
	if s.Affinity != nil {
		spec.WithAffinity(inPod[corev1ac.AffinityApplyConfiguration](s.Affinity))
	}
	return spec
}

// inPod is a part of a class as a pod has it: the API gives its fields the same names.
func inPod[T any](part any) *T {
	same, err := Typed[T](part)
	if err != nil {
		panic(fmt.Sprintf("podspec: %v", err)) // cannot happen
	}
	return same
}
