// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/internal/wire"
)

// SecretName is the Secret in the operator's namespace that keeps the authority.
const SecretName = "agentsession-ca"

// +kubebuilder:rbac:groups="",resources=secrets,namespace=agentsession-system,resourceNames=agentsession-ca,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,namespace=agentsession-system,verbs=create

// Ensure returns the authority that the namespace's Secret keeps, and makes both
// where there is none. Of replicas that start together one creates the Secret and
// the others read it: no two ever sign with different keys.
func Ensure(ctx context.Context, reader client.Reader, writer client.Writer, namespace string) (*Authority, error) {
	key := types.NamespacedName{Namespace: namespace, Name: SecretName}
	a, err := read(ctx, reader, key)
	if !apierrors.IsNotFound(err) {
		return a, err
	}
	if err := create(ctx, writer, key); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating the certificate authority in Secret %s: %w", key, err)
	}
	return read(ctx, reader, key)
}

func read(ctx context.Context, reader client.Reader, key types.NamespacedName) (*Authority, error) {
	var s corev1.Secret
	if err := reader.Get(ctx, key, &s); err != nil {
		return nil, fmt.Errorf("reading the certificate authority from Secret %s: %w", key, err)
	}
	a, err := parse(s.Data[wire.TLSCertFile], s.Data[wire.TLSKeyFile])
	if err != nil {
		return nil, fmt.Errorf("the Secret %s does not hold a certificate authority (%w): delete it and restart the operator; running sessions then need new pods", key, err)
	}
	return a, nil
}

func create(ctx context.Context, writer client.Writer, key types.NamespacedName) error {
	cert, private, err := generate(time.Now())
	if err != nil {
		return err
	}
	return writer.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace,
			Name:      key.Name,
			Labels:    map[string]string{"app.kubernetes.io/managed-by": "agentsession-operator"},
		},
		Immutable: new(true),
		Type:      corev1.SecretTypeTLS,
		Data:      map[string][]byte{wire.TLSCertFile: cert, wire.TLSKeyFile: private},
	})
}
