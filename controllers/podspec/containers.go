// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/agentsession-dev/operator/api/v1alpha1"
	"github.com/agentsession-dev/operator/internal/wire"
)

// Where the programs are: in the agent's image, and where the agent puts the toolbox.
const (
	agentProgram   = "/usr/local/bin/agent"
	toolboxInImage = "/usr/local/bin/toolbox"
	toolboxProgram = wire.ToolboxDir + "/toolbox"
)

// agent is a restartable init container: it starts before the tools and stops after
// them, so that it can log what they did. The kubelet waits for its hook, which
// brings the toolbox, before it starts the tools.
func agent(in Input) *corev1ac.ContainerApplyConfiguration {
	c := corev1ac.Container().
		WithName(AgentContainer).
		WithImage(in.agentImage()).
		WithRestartPolicy(corev1.ContainerRestartPolicyAlways).
		WithCommand(agentProgram, "run").
		WithArgs(
			"--session-uid", string(in.Session.UID),
			"--incarnation", in.Incarnation,
			"--ca-hash", in.CAHash,
			"--containers", strings.Join(Containers(in.Class), ","),
			"--listen", ":"+strconv.Itoa(wire.Port),
			"--log-dir", wire.LogDir,
			"--ctl-dir", wire.CtlDir,
			"--tls-dir", wire.TLSDir,
		).
		WithEnv(corev1ac.EnvVar().WithName("POD_UID").WithValueFrom(corev1ac.EnvVarSource().
			WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("metadata.uid")))).
		WithPorts(corev1ac.ContainerPort().WithName("link").WithContainerPort(wire.Port).WithProtocol(corev1.ProtocolTCP)).
		WithLifecycle(corev1ac.Lifecycle().WithPostStart(corev1ac.LifecycleHandler().WithExec(corev1ac.ExecAction().
			WithCommand(agentProgram, "install", "--from", toolboxInImage, "--to", toolboxProgram)))).
		WithResources(resources(in.Class.Spec.Resources.Agent)).
		WithVolumeMounts(
			mount(volumeData, wire.LogDir).WithSubPath("log"),
			mount(volumeToolbox, wire.ToolboxDir),
			readOnly(mount(volumeTLS, wire.TLSDir)),
		)
	for _, name := range Containers(in.Class) {
		c.WithVolumeMounts(mount(ctlVolume(name), path.Join(wire.CtlDir, name)))
	}
	if in.Class.Spec.Model.KeySecretName != "" {
		c.WithArgs("--model-key-file", path.Join(wire.ModelKeyDir, wire.ModelKeyFile))
		c.WithVolumeMounts(readOnly(mount(volumeModelKey, wire.ModelKeyDir)))
	}
	return confined(in.agentUser(), c)
}

// tools are the containers that tool calls run in: one that cannot write to the
// workspace whatever happens in it, and one that can, if the class lets any session.
func tools(in Input) []*corev1ac.ContainerApplyConfiguration {
	ro := toolsContainer(in, wire.ToolsRO, in.Class.Spec.Resources.ToolsRO).WithVolumeMounts(
		readOnly(mount(volumeData, wire.Workspace).WithSubPath("workspace")),
		readOnly(mount(volumeNoShm, "/dev/shm")), // the runtime's own is writable and shared in the pod
	)
	if !in.writable() {
		return []*corev1ac.ContainerApplyConfiguration{ro}
	}
	rw := toolsContainer(in, wire.ToolsRW, in.Class.Spec.Resources.ToolsRW).WithVolumeMounts(
		mount(volumeData, wire.Workspace).WithSubPath("workspace"),
		mount(volumeShm, "/dev/shm"),
		mount(volumeTmp, "/tmp"),
	)
	if in.Class.Spec.Security.WritableRootFilesystem {
		rw.SecurityContext.WithReadOnlyRootFilesystem(false) // here alone: no read-only call runs in it
	}
	return []*corev1ac.ContainerApplyConfiguration{ro, rw}
}

func toolsContainer(in Input, name string, r v1alpha1.Resources) *corev1ac.ContainerApplyConfiguration {
	return confined(in.toolsUser(), corev1ac.Container().
		WithName(name).
		WithImage(in.toolsImage()).
		WithCommand(toolboxProgram, "supervise").
		WithArgs("--container", name, "--ctl-dir", wire.CtlDir, "--workspace", wire.Workspace).
		WithArgs(commandVariables(in)...).
		WithEnv(corev1ac.EnvVar().WithName("HOME").WithValue(wire.HomeDir)).
		WithWorkingDir("/").
		// Where it is by default, calls could set its time, and with full access write it.
		WithTerminationMessagePath(wire.TerminationLog).
		WithResources(resources(r)).
		WithVolumeMounts(
			readOnly(mount(volumeToolbox, wire.ToolboxDir)),
			readOnly(mount(ctlVolume(name), wire.CtlDir)),
		))
}

func resources(r v1alpha1.Resources) *corev1ac.ResourceRequirementsApplyConfiguration {
	ac := corev1ac.ResourceRequirements()
	if len(r.Requests) > 0 {
		ac.WithRequests(r.Requests)
	}
	if len(r.Limits) > 0 {
		ac.WithLimits(r.Limits)
	}
	return ac
}
