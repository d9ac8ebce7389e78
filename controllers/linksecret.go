// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/rand"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/controllers/podspec"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;delete

// ensureLinkSecret chooses the incarnation of a new pod and creates its link Secret, unless
// that was done for a pod that could not be created.
func (r *SessionReconciler) ensureLinkSecret(ctx context.Context, w *world, in *podspec.Input) (ready bool, out outcome) {
	spare := r.memory.spare(w.session)
	if spare.name != "" && spare.authority == in.CAHash {
		in.Incarnation = spare.name
		return true, outcome{}
	}
	if spare.name != "" { // signed by a root that signs no more
		if out := r.deleteLinkSecret(ctx, w, spare.name); out.err != nil {
			return false, out
		}
		r.memory.setSpare(w.session, incarnation{})
	}
	in.Incarnation = strings.ToLower(rand.Text()[:10])
	if err := r.createLinkSecret(ctx, *in); err != nil {
		return false, w.rejected(err, "link Secret", in.Incarnation)
	}
	r.memory.setSpare(w.session, incarnation{in.Incarnation, in.CAHash})
	return true, outcome{}
}

func (r *SessionReconciler) createLinkSecret(ctx context.Context, in podspec.Input) error {
	files, err := r.Authority.Agent(in.CAHash, string(in.Session.UID), in.Incarnation)
	if err != nil {
		return err
	}
	secret, err := podspec.Typed[corev1.Secret](podspec.LinkSecret(in, files))
	if err != nil {
		return err
	}
	return r.Client.Create(ctx, secret)
}

// followPod remembers whose link Secret goes with the pod, and deletes it when the pod is gone,
// whoever deleted that. It cannot be looked for, because the operator reads no Secrets: what
// this process does not know of goes with the session.
func (r *SessionReconciler) followPod(ctx context.Context, w *world) outcome {
	if w.pod != nil && w.pod.DeletionTimestamp == nil {
		r.memory.setLinked(w.session, incarnationOf(w.pod))
	}
	if w.pod != nil || w.foreign {
		return outcome{}
	}
	return r.dropLinkSecret(ctx, w)
}

// dropLinkSecret deletes the link Secret of the pod that was seen last.
func (r *SessionReconciler) dropLinkSecret(ctx context.Context, w *world) outcome {
	name := r.memory.linked(w.session)
	if name == "" {
		return outcome{}
	}
	out := r.deleteLinkSecret(ctx, w, name)
	if out.err == nil {
		r.memory.setLinked(w.session, "")
	}
	return out
}

func (r *SessionReconciler) deleteLinkSecret(ctx context.Context, w *world, incarnation string) outcome {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.session.Namespace, Name: podspec.LinkSecretName(w.session, incarnation),
	}}
	return broke(client.IgnoreNotFound(r.Client.Delete(ctx, secret)), "deleting link Secret %s", secret.Name)
}
