// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// commandVariables hand the class's variables to a supervisor for the calls. They are no
// variables of its container: the supervisor is not to run under what is meant for commands.
func commandVariables(in Input) (flags []string) {
	for _, v := range in.Class.Spec.Env {
		flags = append(flags, "--env", literal(v.Name+"="+v.Value))
	}
	return flags
}

// fetchVariables are variables of the container that fetches a source. Its program picks from
// them what it lets git have.
func fetchVariables(in Input) (env []*corev1ac.EnvVarApplyConfiguration) {
	for _, v := range in.Class.Spec.Env {
		env = append(env, corev1ac.EnvVar().WithName(v.Name).WithValue(literal(v.Value)))
	}
	return env
}

// literal is what the kubelet turns into s: it puts variables in the place of $(NAME), and a
// dollar in the place of two.
func literal(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// ending is the pod's part of how it ends. Unset is the apiserver's 30 seconds.
func ending(in Input, spec *corev1ac.PodSpecApplyConfiguration) *corev1ac.PodSpecApplyConfiguration {
	if s := in.Class.Spec.TerminationGracePeriodSeconds; s > 0 {
		spec.WithTerminationGracePeriodSeconds(s)
	}
	return spec
}
