// SPDX-License-Identifier: Apache-2.0

// Package podspec decides what a session's pod and what belongs to it look like. It is
// pure: the same input gives the same objects. It knows no client and never looks
// at what exists.
package podspec

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Labels of what belongs to a session. They help people to select, and tell a NetworkPolicy which
// pod it is for; nothing else is decided by them, because whoever may edit a pod may edit its labels.
const (
	LabelSession     = v1alpha1.GroupName + "/session"
	LabelSessionUID  = v1alpha1.GroupName + "/session-uid" // a later session of the same name is another one
	LabelIncarnation = v1alpha1.GroupName + "/incarnation"
)

// AgentContainer is the name of the container that talks to the model.
const AgentContainer = "agent"

// WorkspaceContainer is the name of the container that fills the workspace and ends.
const WorkspaceContainer = "workspace"

// Input is all that a pod is made from.
type Input struct {
	Session     *v1alpha1.AgentSession
	Class       *v1alpha1.AgentSessionClass
	AgentImage  string // the operator's own, where the class names none
	Incarnation string // which pod of the session this is; a DNS label
	CAHash      string // wire.CAHash of the operator's certificate authority
}

// PodName is the name of the one pod of a session: its name and five characters of
// its UID's hash, so that a later session of the same name has another.
func PodName(session *v1alpha1.AgentSession) string {
	sum := sha256.Sum256([]byte(session.UID))
	return session.Name + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:5]
}

// LinkSecretName is the name of the Secret that holds the certificate of one incarnation.
func LinkSecretName(session *v1alpha1.AgentSession, incarnation string) string {
	return PodName(session) + "-" + incarnation
}

// Containers are the tools containers of a class, narrowest first. A class whose
// ceiling is read-only has none that could write.
func Containers(class *v1alpha1.AgentSessionClass) []string {
	if class.Spec.Ceiling.MaxMode == v1alpha1.ModeReadOnly {
		return []string{wire.ToolsRO}
	}
	return []string{wire.ToolsRO, wire.ToolsRW}
}

func (in Input) writable() bool { return len(Containers(in.Class)) > 1 }

func (in Input) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "agentsession",
		"app.kubernetes.io/component":  "runner",
		"app.kubernetes.io/managed-by": "agentsession-operator",
		LabelSession:                   in.Session.Name,
		LabelSessionUID:                string(in.Session.UID),
		LabelIncarnation:               in.Incarnation,
	}
}

func (in Input) agentImage() string {
	if in.Class.Spec.Images.Agent != "" {
		return in.Class.Spec.Images.Agent
	}
	return in.AgentImage
}

func (in Input) toolsImage() string {
	return cmp.Or(in.Session.Spec.ToolsImage, in.Class.Spec.Images.Tools)
}

func (in Input) agentUser() int64 {
	return valueOr(in.Class.Spec.Security.AgentUser, v1alpha1.DefaultAgentUser)
}

func (in Input) toolsUser() int64 {
	return valueOr(in.Class.Spec.Security.ToolsUser, v1alpha1.DefaultToolsUser)
}

func (in Input) fsGroup() int64 {
	return valueOr(in.Class.Spec.Security.FSGroup, v1alpha1.DefaultFSGroup)
}

func valueOr[T any](p *T, otherwise T) T {
	if p != nil {
		return *p
	}
	return otherwise
}

// Typed turns an apply configuration into the type that it configures. An object
// that must not exist yet is created, not applied: apply would take over a foreign
// object of the same name.
func Typed[T any](configuration any) (*T, error) {
	b, err := json.Marshal(configuration)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", configuration, err)
	}
	out := new(T)
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fmt.Errorf("decoding %T: %w", out, err)
	}
	return out, nil
}
