// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Images names the images of a session's containers.
type Images struct {
	// agent is the image with the agent and the toolbox. Unset: the one that
	// belongs to the operator.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\S+$`
	Agent string `json:"agent,omitempty"`

	// tools is the image that the agent's commands run in: any Linux image with
	// the programs that they should find.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\S+$`
	Tools string `json:"tools"`

	// allowedTools are patterns of the images that sessions may choose by
	// toolsImage besides tools. A pattern is an image with * for any number of
	// characters, within one part between slashes: registry.example/team/* admits
	// registry.example/team/go:1.26, and no registry.example/team/a/b. The registry, and
	// whatever else stands before the first slash, is written out. Names are compared
	// as they are written: debian is not docker.io/library/debian. A pattern without tag
	// and digest admits every one. With a tag, such as debian:13*, it admits images that
	// have such a tag and no digest, because with a digest a tag counts for nothing; with a
	// digest, those of such a digest. A change holds for pods that start later. Unset: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^[^/]*[*][^/]*/')",message="a pattern must have no * before its first slash, where the registry stands: write that part out"
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^([A-Za-z0-9.-]+(:[0-9]+)?/)?([a-z0-9._*-]+/)*[a-z0-9._*-]+(:[A-Za-z0-9_.*-]+)?(@[a-z0-9*]+:[a-f0-9*]+)?$') || self.matches('^[^/]*[*][^/]*/')",message="a pattern must be an image with * for what may differ: [registry/]name[:tag][@digest], for example registry.example/team/*"
	AllowedTools []string `json:"allowedTools,omitempty"`
}

// ClassResources gives each container its resources.
type ClassResources struct {
	// agent is the container that talks to the model.
	// +optional
	Agent Resources `json:"agent,omitzero"`

	// toolsRO is the container that runs tools in mode read-only.
	// +optional
	ToolsRO Resources `json:"toolsRO,omitzero"`

	// toolsRW is the container that runs tools in the wider modes.
	// +optional
	ToolsRW Resources `json:"toolsRW,omitzero"`
}

// Resources are requests and limits as in a container.
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.all(k, quantity(string(self.requests[k])).compareTo(quantity('0')) >= 0)",message="no request may be negative",fieldPath=".requests"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || self.limits.all(k, quantity(string(self.limits[k])).compareTo(quantity('0')) >= 0)",message="no limit may be negative",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || quantity(string(self.limits[k])).compareTo(quantity(string(self.requests[k]))) >= 0)",message="no limit may be below its request",fieldPath=".limits"
type Resources struct {
	// requests that the scheduler reserves: cpu, memory, ephemeral-storage.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="only cpu, memory and ephemeral-storage can be requested: remove the others"
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// limits that the kernel and the kubelet hold the container to: cpu, memory,
	// ephemeral-storage. None may be below its request.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="only cpu, memory and ephemeral-storage can be limited: remove the others"
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// Security says as whom the containers run. None may be root.
// +kubebuilder:validation:XValidation:rule="(has(self.agentUser) ? self.agentUser : 65532) != (has(self.toolsUser) ? self.toolsUser : 65533)",message="agentUser and toolsUser must differ (65532 and 65533 where unset): a tool must not be able to pass for the agent"
type Security struct {
	// agentUser is the user and group ID of the agent. Unset: 65532.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	AgentUser *int64 `json:"agentUser,omitempty"`

	// toolsUser is the user and group ID of the tools. Unset: 65533.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	ToolsUser *int64 `json:"toolsUser,omitempty"`

	// fsGroup is the group that owns the volumes. Unset: 65533.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	FSGroup *int64 `json:"fsGroup,omitempty"`

	// writableRootFilesystem gives the container of the wider modes a root file system that
	// can be written where the image lets toolsUser: under danger-full-access calls can then
	// change it, until the container is started anew. In workspace-write they still modify
	// files in the workspace and temporary areas alone, and may change mode and times of
	// what is toolsUser's elsewhere. read-only is not concerned: its container's root file
	// system is read-only in any case, and so are those of all others. What calls write counts as
	// the container's ephemeral-storage. Where ceiling.maxMode is read-only there is no such
	// container. Default: false.
	// +optional
	WritableRootFilesystem bool `json:"writableRootFilesystem,omitempty"`
}

// Variable is one of the environment.
type Variable struct {
	// name of the variable. It takes the place of one of the same name that commands have
	// otherwise, such as PATH, LANG or TERM.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['HOME', 'TMPDIR', 'ENV', 'SHELLOPTS', 'IFS', 'PWD', 'SHLVL', 'UID', 'EUID', 'PPID', '_']) && !self.matches('^(BASH|GIT_CONFIG|LD_)')",message="HOME, TMPDIR, ENV, SHELLOPTS, IFS, PWD, SHLVL, UID, EUID, PPID, _ and what begins with BASH, GIT_CONFIG or LD_ belong to the sandbox and the shell: take the variable out"
	Name string `json:"name"`

	// value as it stands here: nothing in it is replaced. Everybody can read it who may read
	// classes or pods, and so can the model: it is no place for secrets. Unset: empty.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	Value string `json:"value,omitempty"`
}
