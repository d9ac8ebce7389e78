// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Workspace is where the tools of a session work.
type Workspace struct {
	// source is what the workspace holds when the session starts. It is fetched
	// once, before any tool runs, as the tools' user; nothing fetches it again.
	// Unset: nothing.
	// +optional
	Source *WorkspaceSource `json:"source,omitempty"`

	// storage is the volume that holds the workspace and the session's log.
	// Unset: as the class says.
	// +optional
	Storage *Storage `json:"storage,omitempty"`
}

// WorkspaceSource is what a workspace holds at first.
// +kubebuilder:validation:XValidation:rule="has(self.git) == (self.type == 'Git')",message="git belongs to type Git and to no other: set type: Git together with git: {url: ...}, or take git out",fieldPath=".git"
// +kubebuilder:validation:XValidation:rule="has(self.configMap) == (self.type == 'ConfigMap')",message="configMap belongs to type ConfigMap and to no other: set type: ConfigMap together with configMap: {name: ...}, or take configMap out",fieldPath=".configMap"
type WorkspaceSource struct {
	// type of the source. Empty: nothing. Git: a Git repository. ConfigMap: the
	// files of a ConfigMap.
	// +required
	Type WorkspaceSourceType `json:"type"`

	// git is the repository, for type Git. The tools image must have git.
	// +optional
	Git *GitSource `json:"git,omitempty"`

	// configMap has the files, for type ConfigMap.
	// +optional
	ConfigMap *ConfigMapSource `json:"configMap,omitempty"`
}

// WorkspaceSourceType is the kind of a source.
// +kubebuilder:validation:Enum=Empty;Git;ConfigMap
type WorkspaceSourceType string

const (
	// SourceEmpty is a workspace with nothing in it.
	SourceEmpty WorkspaceSourceType = "Empty"
	// SourceGit is a clone of a Git repository.
	SourceGit WorkspaceSourceType = "Git"
	// SourceConfigMap is a copy of the files of a ConfigMap.
	SourceConfigMap WorkspaceSourceType = "ConfigMap"
)

// GitSource is a repository. It is cloned with all its branches and tags, without
// hooks, submodules and filters (LFS among them); no credentials stay behind.
// +kubebuilder:validation:XValidation:rule="!has(self.credentialsSecretName) || !isURL(self.url) || url(self.url).getScheme() == 'https'",message="url must begin with https:// where credentialsSecretName is set: over http the credentials could be read on the way",fieldPath=".url"
type GitSource struct {
	// url of the repository: https://, or http:// where it needs no credentials. It
	// holds no user and no password; those are in the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https?://([A-Za-z0-9][A-Za-z0-9.-]*|[[][0-9A-Fa-f:.]+[]])(:[0-9]+)?(/[A-Za-z0-9._~/%+,:=-]*)?$')",message="url must begin with https:// (or http://) and have a host, without user, query and fragment, for example https://git.example.com/team/project.git"
	URL string `json:"url"`

	// ref is the branch, tag or commit (whole hash) to check out. Unset: the branch
	// that the repository's HEAD names.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9._/+@-]*$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.contains('//') && !self.contains('@{') && !self.endsWith('/') && !self.endsWith('.') && !self.endsWith('.lock')",message="ref is no name that git allows for a branch or tag, and no whole hash of a commit: write it as git branch, git tag or git log --format=%H shows it"
	Ref string `json:"ref,omitempty"`

	// credentialsSecretName names a Secret in the session's namespace with the keys
	// username and password, as in a Secret of type kubernetes.io/basic-auth. For a
	// token, it is the password. It is mounted for the fetch alone. Unset: the
	// repository needs none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	CredentialsSecretName string `json:"credentialsSecretName,omitempty"`
}

// ConfigMapSource is a ConfigMap whose keys are the names of files.
type ConfigMapSource struct {
	// name of the ConfigMap, in the session's namespace. Both data and binaryData
	// become files of the workspace.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}
