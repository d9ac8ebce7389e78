// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SessionMessage is one user message to the agent of a session in the same
// namespace. Messages are delivered in the order in which they were created,
// each exactly once. The agent acts on it with the session's mode.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:resource:shortName=agsm,categories=agents
// +kubebuilder:selectablefield:JSONPath=`.spec.sessionName`
// +kubebuilder:printcolumn:name="Session",type=string,JSONPath=`.spec.sessionName`
// +kubebuilder:printcolumn:name="Author",type=string,JSONPath=`.spec.author`,priority=1
// +kubebuilder:printcolumn:name="Delivered",type=string,JSONPath=`.status.conditions[?(@.type=="Delivered")].status`
// +kubebuilder:printcolumn:name="Answered",type=string,JSONPath=`.status.conditions[?(@.type=="Answered")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SessionMessage struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the message. It cannot change.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a message cannot change once it exists: create another one"
	Spec SessionMessageSpec `json:"spec"`

	// status is what became of the message.
	// +optional
	Status SessionMessageStatus `json:"status,omitzero"`
}

// SessionMessageList is a list of messages.
// +kubebuilder:object:root=true
type SessionMessageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []SessionMessage `json:"items"`
}

// SessionMessageSpec is a message and whom it is for.
type SessionMessageSpec struct {
	// sessionName names the session, in the same namespace.
	// +required
	// +kubebuilder:validation:MaxLength=52
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	SessionName string `json:"sessionName"`

	// content is the text of the message, from 1 byte to 64 KiB.
	// +required
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.trim().size() > 0",message="content is empty: write what the agent should do"
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 65536",message="content is larger than 65536 bytes: shorten it or split it into several messages"
	Content string `json:"content"`

	// author is who wrote the message, by the name that the apiserver knows them
	// by. The chart's admission policy refuses any other name, and fills it in where the
	// cluster has MutatingAdmissionPolicies (Kubernetes 1.36 or later). It stands in the
	// session's log. Unset: not known.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Author string `json:"author,omitempty"`

	// interrupt cancels the turn that runs when the message is delivered: its
	// calls are stopped, and its message is answered as far as it came. The
	// message itself is answered after those that were created before it.
	// Default: false.
	// +optional
	Interrupt bool `json:"interrupt,omitempty"`
}

// SessionMessageStatus is what became of a message.
type SessionMessageStatus struct {
	// sequence is the number of the message in the session's log.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`

	// turn is the number of the turn that answers the message.
	// +optional
	Turn int64 `json:"turn,omitempty"`

	// reply is what the model answered, cut at 8 KiB. The pod's log has the
	// whole.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Reply string `json:"reply,omitempty"`

	// conditions: Delivered once the message is safely in the session's log,
	// Answered once the agent has finished with it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
