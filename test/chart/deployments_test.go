// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// availableDeployments does what no part of envtest does: it reports every Deployment of the release as
// available, so that helm --wait ends. The function that it returns stops it.
func availableDeployments(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := reportAvailable(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("reporting deployments as available: %v", err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}

func reportAvailable(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	if err := api.List(ctx, &deployments, client.InNamespace(system)); err != nil {
		return err
	}
	for _, d := range deployments.Items {
		if d.Status.ObservedGeneration == d.Generation {
			continue
		}
		n := *d.Spec.Replicas
		condition := func(kind appsv1.DeploymentConditionType, reason string) appsv1.DeploymentCondition {
			return appsv1.DeploymentCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now(), LastUpdateTime: metav1.Now()}
		}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
			Conditions: []appsv1.DeploymentCondition{
				condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable"),
				condition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable"),
			}}
		if err := api.Status().Update(ctx, &d); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
