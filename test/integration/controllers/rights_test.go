// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/agentsession-dev/operator/config"
	"github.com/agentsession-dev/operator/controllers/authority"
)

// setUp gives the operator its generated role and its authority.
func setUp() error {
	ctx := context.Background()
	var role rbacv1.ClusterRole
	var own rbacv1.Role
	documents := bytes.Split(config.Role, []byte("\n---\n"))
	if len(documents) != 2 {
		return fmt.Errorf("the generated role has %d documents, want 2", len(documents))
	}
	if err := errors.Join(yaml.UnmarshalStrict(documents[0], &role), yaml.UnmarshalStrict(documents[1], &own)); err != nil {
		return fmt.Errorf("decoding the generated role: %w", err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "operator"}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own.Namespace}},
		&role, &own,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: own.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: own.Name}},
	} {
		if err := admin.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T: %w", o, err)
		}
	}
	c, err := client.New(operator, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	ca, err = authority.Ensure(ctx, c, c, own.Namespace, authority.Options{})
	return err
}
