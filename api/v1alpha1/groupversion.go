// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the types of agentsession.dev/v1alpha1 with the rules
// that the apiserver checks, and the names of conditions and reasons. It has no
// behaviour: what a session may do is decided elsewhere.
// +kubebuilder:object:generate=true
// +groupName=agentsession.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group; labels and annotations begin with it.
const GroupName = "agentsession.dev"

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&AgentSession{}, &AgentSessionList{},
		&AgentSessionClass{}, &AgentSessionClassList{},
		&SessionMessage{}, &SessionMessageList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme adds the types of this package to a scheme.
var AddToScheme = schemeBuilder.AddToScheme
