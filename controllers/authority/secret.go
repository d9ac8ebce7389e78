// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	// SecretName is the Secret in the operator's namespace that keeps the authority.
	SecretName = "agentsession-ca"
	// RotateAnnotation, with any value on that Secret, asks for a new root. It is taken
	// off when there is one.
	RotateAnnotation = "agentsession.dev/rotate"

	previousCertFile = "previous.crt"
	previousKeyFile  = "previous.key"
)

// +kubebuilder:rbac:groups="",resources=secrets,namespace=agentsession-system,resourceNames=agentsession-ca,verbs=get;update
// +kubebuilder:rbac:groups="",resources=secrets,namespace=agentsession-system,verbs=create

// Ensure returns the authority that the namespace's Secret keeps, and makes both
// where there is none. Of replicas that start together one creates the Secret and
// the others read it: no two ever sign with different keys.
func Ensure(ctx context.Context, reader client.Reader, writer client.Writer, namespace string, o Options) (*Authority, error) {
	a := &Authority{options: o.withDefaults()}
	key := types.NamespacedName{Namespace: namespace, Name: SecretName}
	s, err := get(ctx, reader, key)
	if apierrors.IsNotFound(err) {
		if err := create(ctx, writer, key, a.options); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("creating the certificate authority in Secret %s: %w", key, err)
		}
		s, err = get(ctx, reader, key)
	}
	if err != nil {
		return nil, err
	}
	roots, err := rootsOf(s)
	if err != nil {
		return nil, fmt.Errorf("%w: delete it and restart the operator; running sessions then need new pods", err)
	}
	a.set(roots)
	return a, nil
}

func get(ctx context.Context, reader client.Reader, key types.NamespacedName) (*corev1.Secret, error) {
	var s corev1.Secret
	if err := reader.Get(ctx, key, &s); err != nil {
		return nil, fmt.Errorf("reading the certificate authority from Secret %s: %w", key, err)
	}
	return &s, nil
}

// rootsOf reads the root that signs and the one before it, if it is still kept.
func rootsOf(s *corev1.Secret) ([]*root, error) {
	current, err := parse(s.Data[wire.TLSCertFile], s.Data[wire.TLSKeyFile])
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s does not hold a certificate authority (%w)", s.Namespace, s.Name, err)
	}
	if len(s.Data[previousCertFile]) == 0 {
		return []*root{current}, nil
	}
	previous, err := parse(s.Data[previousCertFile], s.Data[previousKeyFile])
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s does not hold the previous certificate authority (%w)", s.Namespace, s.Name, err)
	}
	return []*root{current, previous}, nil
}

func create(ctx context.Context, writer client.Writer, key types.NamespacedName, o Options) error {
	cert, private, err := generate(o.Now(), o.Lifetime)
	if err != nil {
		return err
	}
	return writer.Create(ctx, secret(key, map[string][]byte{wire.TLSCertFile: cert, wire.TLSKeyFile: private}))
}

func secret(key types.NamespacedName, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace,
			Name:      key.Name,
			Labels:    map[string]string{"app.kubernetes.io/managed-by": "agentsession-operator"},
		},
		Type: corev1.SecretTypeTLS,
		Data: data,
	}
}
