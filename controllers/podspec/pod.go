// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// Pod is the pod of a session. It passes the Pod Security Standard restricted.
func Pod(in Input) *corev1ac.PodApplyConfiguration {
	return pod(in).WithAnnotations(map[string]string{AnnotationInputs: Inputs(in)})
}

// AnnotationInputs is the digest of what a pod was built from.
const AnnotationInputs = v1alpha1.GroupName + "/inputs"

// Inputs is the digest of what a pod is built from, whichever incarnation it is.
func Inputs(in Input) string {
	in.Incarnation = ""
	b, err := json.Marshal(pod(in))
	if err != nil {
		panic(fmt.Sprintf("podspec: encoding a pod: %v", err)) // cannot happen
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

func pod(in Input) *corev1ac.PodApplyConfiguration {
	return corev1ac.Pod(PodName(in.Session), in.Session.Namespace).
		WithLabels(in.labels()).
		WithLabels(map[string]string{"sidecar.istio.io/inject": "false"}).
		WithAnnotations(annotations(in)).
		WithOwnerReferences(owner(in.Session)).
		WithSpec(confinedPod(in, ending(in, scheduled(in, corev1ac.PodSpec())).
			WithRestartPolicy(corev1.RestartPolicyAlways).
			WithInitContainers(agent(in)).
			WithInitContainers(workspace(in)...).
			WithContainers(tools(in)...).
			WithVolumes(volumes(in)...)))
}

// annotations keep others from changing the pod: a mesh's sidecar would stand between
// operator and agent, and eviction would end a session whose log is on the node.
func annotations(in Input) map[string]string {
	return map[string]string{
		"kubectl.kubernetes.io/default-container":        AgentContainer,
		"cluster-autoscaler.kubernetes.io/safe-to-evict": strconv.FormatBool(in.persistent()),
		"sidecar.istio.io/inject":                        "false",
		"linkerd.io/inject":                              "disabled",
	}
}

func owner(session *v1alpha1.AgentSession) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind("AgentSession").
		WithName(session.Name).
		WithUID(session.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}
