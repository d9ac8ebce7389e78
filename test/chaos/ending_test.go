// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// ending is a session that ends while things break, and where its spec says that it does.
type ending struct {
	name, spec string
	messages   int    // sent to it, beside its prompt
	reason     string // of Completed; "" where it is to be gone
	deleted    bool   // by a person
}

func endings() []ending {
	const idle = "completion: WhenIdle"
	return []ending{
		{name: "when-idle", spec: idle, messages: 1, reason: v1alpha1.ReasonSucceeded},
		{name: "limit", spec: idle + ", limits: {maxTurns: 1}", messages: 1, reason: v1alpha1.ReasonLimitReached},
		{name: "deadline", spec: "activeDeadlineSeconds: 12", reason: v1alpha1.ReasonDeadlineExceeded},
		{name: "ttl", spec: idle + ", ttlSecondsAfterFinished: 3"},
		{name: "idle", spec: "idlePolicy: {deleteAfterSeconds: 5}"},
		{name: "deleted", spec: idle, deleted: true},
	}
}

// endAll creates one session after the other until ctx ends, and sees each to its end. It returns
// how many there were: as many conversations the model may have had whose log is gone.
func endAll(ctx context.Context, t *testing.T, random *rand.Rand) (n int) {
	all := endings()
	for ; ctx.Err() == nil; n++ {
		e := all[n%len(all)]
		if err := e.run(context.WithoutCancel(ctx), fmt.Sprintf("end-%d-%s", n+1, e.name), random); err != nil {
			t.Errorf("session end-%d-%s: %v", n+1, e.name, err)
		}
	}
	t.Logf("%d sessions ended as their specs say", n)
	return n
}

func (e ending) run(ctx context.Context, name string, random *rand.Rand) error {
	err := insist(ctx, func() error {
		_, err := kube.Apply(ctx, manifest(name, fmt.Sprintf("prompt: chaos prompt of %s, workspace: {storage: {type: EmptyDir}}, %s", name, e.spec)))
		return err
	})
	if err != nil {
		return err
	}
	for i := range e.messages {
		if _, err := send(ctx, name, fmt.Sprintf("%s-m%d", name, i+1)); err != nil {
			return err
		}
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if e.deleted {
		sleep(ctx, time.Duration(random.IntN(8000))*time.Millisecond)
		session := &v1alpha1.AgentSession{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := insist(ctx, func() error { return client.IgnoreNotFound(api.Delete(ctx, session)) }); err != nil {
			return err
		}
	}
	var now string
	for end := time.Now().Add(settled); time.Now().Before(end); sleep(ctx, 500*time.Millisecond) {
		var got v1alpha1.AgentSession
		err := api.Get(ctx, key, &got)
		if e.reason == "" && apierrors.IsNotFound(err) || e.reason != "" && err == nil && e.over(&got) {
			return e.left(ctx, name, end)
		}
		if now = fmt.Sprintf("%+v", got.Status); err != nil {
			now = err.Error()
		}
		if apierrors.IsNotFound(err) {
			break
		}
	}
	return fmt.Errorf("it does not end as its spec says (%s): %s", e.spec, now)
}

func (e ending) over(s *v1alpha1.AgentSession) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionCompleted)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == e.reason && s.Status.CompletionTime != nil &&
		meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady) == (e.reason == v1alpha1.ReasonSucceeded)
}

// left waits until nothing of an ended session runs, and what was to be told of it is told.
func (e ending) left(ctx context.Context, name string, end time.Time) error {
	var err error
	for ; time.Now().Before(end); sleep(ctx, 500*time.Millisecond) {
		var pods corev1.PodList
		var messages v1alpha1.SessionMessageList
		if err = errors.Join(api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"agentsession.dev/session": name}),
			api.List(ctx, &messages, client.InNamespace(namespace), client.MatchingFields{"spec.sessionName": name})); err != nil {
			continue
		}
		err = nil
		for _, p := range pods.Items {
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				err = fmt.Errorf("its pod %s is %s", p.Name, p.Status.Phase)
			}
		}
		for i := range messages.Items {
			if m := &messages.Items[i]; !over(m) {
				err = fmt.Errorf("message %s has %+v", m.Name, m.Status)
			}
		}
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("it has ended, and something is left: %w", err)
}
