// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
)

// LinkSecret holds what one incarnation of the agent identifies itself with. It is
// immutable: a new incarnation gets a Secret of its own.
func LinkSecret(in Input, files map[string][]byte) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(LinkSecretName(in.Session, in.Incarnation), in.Session.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(owner(in.Session)).
		WithType(corev1.SecretTypeOpaque).
		WithImmutable(true).
		WithData(files)
}
