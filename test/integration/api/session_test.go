// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const session = `
apiVersion: agentsession.dev/v1alpha1
kind: AgentSession
metadata: {namespace: default}
spec: {}
`

const fullSession = `
apiVersion: agentsession.dev/v1alpha1
kind: AgentSession
metadata: {namespace: default}
spec:
  className: standard
  sandbox: {mode: workspace-write, network: none}
  approval: {policy: never}
  prompt: Fix the build.
  instructions: Be brief.
  model: {name: deepseek-chat}
  toolsImage: debian:13
  workspace: {storage: {type: EmptyDir, size: 2Gi}}
  runtimeContext: Suppressed
  limits: {maxTurns: 10, maxStepsPerTurn: 50, maxTotalTokens: 1000000}
`

const (
	nameRule  = "the name of a session must have at most 52 characters, only a-z, 0-9 and '-', and begin and end with a letter or digit: choose another name"
	imageRule = "toolsImage must be [registry/]name[:tag][@digest]"
	sizeRule  = "size must be at least 16Mi"
)

func TestSessionsThatAreRefusedOrAdmitted(t *testing.T) {
	refusals{
		"an empty spec is enough":    {set("metadata.name", "minimal"), ""},
		"without a spec":             {unset("spec"), "spec: Required value"},
		"a name of 52 characters":    {set("metadata.name", strings.Repeat("a", 52)), ""},
		"a name of 53 characters":    {set("metadata.name", strings.Repeat("a", 53)), nameRule},
		"a name with a dot":          {set("metadata.name", "fix.build"), nameRule},
		"an unknown mode":            {set("spec.sandbox.mode", "read-write"), `spec.sandbox.mode: Unsupported value: "read-write": supported values: "read-only", "workspace-write", "danger-full-access"`},
		"an empty mode":              {set("spec.sandbox.mode", ""), `spec.sandbox.mode: Unsupported value: ""`},
		"another network":            {set("spec.sandbox.network", "host"), `spec.sandbox.network: Unsupported value: "host": supported values: "none", "open"`},
		"an open network":            {set("spec.sandbox.network", "open"), ""},
		"approval by asking":         {set("spec.approval.policy", "ask"), ""},
		"approval by itself":         {set("spec.approval.policy", "always"), `spec.approval.policy: Unsupported value: "always": supported values: "ask", "never"`},
		"a person has a second":      {set("spec.approval.timeoutSeconds", int64(1)), ""},
		"a person has a week":        {set("spec.approval.timeoutSeconds", int64(604800)), ""},
		"a person has no time":       {set("spec.approval.timeoutSeconds", int64(0)), "spec.approval.timeoutSeconds: Invalid value: 0"},
		"a person has for ever":      {set("spec.approval.timeoutSeconds", int64(604801)), "spec.approval.timeoutSeconds: Invalid value: 604801"},
		"an empty prompt":            {set("spec.prompt", ""), "prompt is empty: write a message, or leave the field out to start without one"},
		"a prompt of blanks":         {set("spec.prompt", " \n\t"), "prompt is empty"},
		"a prompt of 64 KiB":         {set("spec.prompt", strings.Repeat("a", 65536)), ""},
		"a prompt beyond 64 KiB":     {set("spec.prompt", strings.Repeat("a", 65537)), "spec.prompt: Too long"},
		"a prompt of wide letters":   {set("spec.prompt", strings.Repeat("ä", 32769)), "prompt is larger than 65536 bytes: shorten it"},
		"empty instructions":         {set("spec.instructions", ""), "instructions are empty: write some, or leave the field out"},
		"instructions beyond 64 KiB": {set("spec.instructions", strings.Repeat("a", 65537)), "spec.instructions: Too long"},
		"wide instructions":          {set("spec.instructions", strings.Repeat("ä", 32769)), "instructions are larger than 65536 bytes: shorten them"},
		"a class name in capitals":   {set("spec.className", "Standard"), "spec.className: Invalid value"},
		"a class name beyond limits": {set("spec.className", strings.Repeat("a", 254)), "spec.className: Too long"},
		"a model without a name":     {set("spec.model", object{}), "spec.model.name: Required value"},
		"a model with a blank":       {set("spec.model.name", "deepseek chat"), "spec.model.name: Invalid value"},
		"a model beyond limits":      {set("spec.model.name", strings.Repeat("m", 254)), "spec.model.name: Too long"},
		"another runtime context":    {set("spec.runtimeContext", "Off"), `supported values: "Enabled", "Suppressed"`},
		"limits of nothing":          {set("spec.limits", object{}), ""},
		"no turn at all":             {set("spec.limits.maxTurns", int64(0)), "spec.limits.maxTurns: Invalid value"},
		"steps beyond limits":        {set("spec.limits.maxStepsPerTurn", int64(10001)), "spec.limits.maxStepsPerTurn: Invalid value"},
		"fewer tokens than none":     {set("spec.limits.maxTotalTokens", int64(-1)), "spec.limits.maxTotalTokens: Invalid value"},
		"a limit that is unknown":    {set("spec.limits.maxCalls", int64(1)), `unknown field "spec.limits.maxCalls"`},
		"storage without a type":     {set("spec.workspace.storage", object{"size": "1Gi"}), "spec.workspace.storage.type: Required value"},
		"storage that is too small":  {set("spec.workspace.storage", object{"type": "EmptyDir", "size": "1Mi"}), sizeRule},
		"storage of less than none":  {set("spec.workspace.storage", object{"type": "EmptyDir", "size": "-1Gi"}), sizeRule},
		"storage in whole bytes":     {set("spec.workspace.storage", object{"type": "EmptyDir", "size": int64(1 << 30)}), ""},
		"storage of few whole bytes": {set("spec.workspace.storage", object{"type": "EmptyDir", "size": int64(1024)}), sizeRule},
		"storage that is no size":    {set("spec.workspace.storage", object{"type": "EmptyDir", "size": "big"}), "spec.workspace.storage.size: Invalid value"},
		"a size of many digits":      {set("spec.workspace.storage", object{"type": "EmptyDir", "size": strings.Repeat("1", 33)}), "size has more than 32 characters"},
		"a field that does not exist": {
			set("spec.sandbox.mod", "workspace-write"), `unknown field "spec.sandbox.mod"`,
		},
		"an image":                   {set("spec.toolsImage", "debian"), ""},
		"an image with all parts":    {set("spec.toolsImage", "registry.example:5000/team/go_lint/a-b.c:v1.2_x@sha256:"+strings.Repeat("0a", 32)), ""},
		"an image of blanks":         {set("spec.toolsImage", " "), imageRule},
		"an empty image":             {set("spec.toolsImage", ""), imageRule},
		"an image in capitals":       {set("spec.toolsImage", "registry.example/Team/tools"), imageRule},
		"an image that goes up":      {set("spec.toolsImage", "registry.example/team/../other/tools"), imageRule},
		"an image with two slashes":  {set("spec.toolsImage", "registry.example/team//tools"), imageRule},
		"an image by URL":            {set("spec.toolsImage", "https://registry.example/tools"), imageRule},
		"an image with a star":       {set("spec.toolsImage", "registry.example/team/*"), imageRule},
		"an image of two tags":       {set("spec.toolsImage", "debian:13:14"), imageRule},
		"an image of another digest": {set("spec.toolsImage", "debian@sha256:0a"), imageRule},
		"an image of two lines":      {set("spec.toolsImage", "debian:13\n"), imageRule},
		"an image in another script": {set("spec.toolsImage", "dеbian"), imageRule}, // the e is Cyrillic
		"an image beyond limits":     {set("spec.toolsImage", strings.Repeat("a", 513)), "spec.toolsImage: Too long"},
	}.run(t, session)
}

func TestEachModeIsAdmitted(t *testing.T) {
	for _, mode := range []string{"read-only", "workspace-write", "danger-full-access"} {
		wantRefusal(t, create(t.Context(), manifest(t, session, set("spec.sandbox.mode", mode))), "")
	}
}

func TestWhatOfASessionCanChange(t *testing.T) {
	refusals{
		"the mode":                  {set("spec.sandbox.mode", "read-only"), ""},
		"the sandbox as a whole":    {unset("spec.sandbox"), ""},
		"the approval as a whole":   {unset("spec.approval"), ""},
		"the approval policy":       {set("spec.approval.policy", "ask"), ""},
		"the time for approval":     {set("spec.approval.timeoutSeconds", int64(60)), ""},
		"suspend":                   {set("spec.suspend", true), ""},
		"not to an unknown mode":    {set("spec.sandbox.mode", "yolo"), "Unsupported value"},
		"not the class":             {set("spec.className", "other"), "className cannot be added, changed or removed later"},
		"not the class, removed":    {unset("spec.className"), "className cannot be added, changed or removed later"},
		"not the prompt":            {set("spec.prompt", "Other."), "prompt cannot be added, changed or removed later: create a SessionMessage to say more"},
		"not the prompt, removed":   {unset("spec.prompt"), "prompt cannot be added, changed or removed later"},
		"not the instructions":      {set("spec.instructions", "Other."), "instructions cannot be added, changed or removed later"},
		"not the instructions gone": {unset("spec.instructions"), "instructions cannot be added, changed or removed later"},
		"not the runtime context":   {set("spec.runtimeContext", "Enabled"), "runtimeContext cannot be added, changed or removed later"},
		"the limits":                {set("spec.limits.maxTurns", int64(11)), ""},
		"the limits, gone":          {unset("spec.limits"), ""},
		"not the model":             {set("spec.model.name", "other"), "model cannot be added, changed or removed later"},
		"not the model, removed":    {unset("spec.model"), "model cannot be added, changed or removed later"},
		"not the tools image":       {set("spec.toolsImage", "debian:14"), "toolsImage cannot be added, changed or removed later"},
		"not the image, removed":    {unset("spec.toolsImage"), "toolsImage cannot be added, changed or removed later"},
		"not the storage":           {set("spec.workspace.storage.size", "4Gi"), "workspace cannot be added, changed or removed later"},
		"not the workspace, gone":   {unset("spec.workspace"), "workspace cannot be added, changed or removed later"},
	}.runUpdates(t, fullSession)
}

func TestWhatCannotBeAddedToASessionLater(t *testing.T) {
	refusals{
		"a class":      {set("spec.className", "standard"), "className cannot be added"},
		"a prompt":     {set("spec.prompt", "Hello."), "prompt cannot be added"},
		"instructions": {set("spec.instructions", "Be brief."), "instructions cannot be added"},
		"a model":      {set("spec.model.name", "deepseek-chat"), "model cannot be added"},
		"an image":     {set("spec.toolsImage", "debian:13"), "toolsImage cannot be added"},
		"a workspace":  {set("spec.workspace", object{}), "workspace cannot be added"},
	}.runUpdates(t, session)
}

func TestDefaultsOfASession(t *testing.T) {
	u := manifest(t, session)
	if err := create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	want := object{
		"sandbox":  object{"mode": "read-only", "network": "none"},
		"approval": object{"policy": "ask", "timeoutSeconds": int64(1800)},

		"runtimeContext": "Enabled",
		"suspend":        false,
		"completion":     "Never",
	}
	if diff := cmp.Diff(want, u.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	// A new session must not look current to tools that compare generations.
	if diff := cmp.Diff(object{"observedGeneration": int64(-1)}, u.Object["status"]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestADefaultFillsWhatIsLeftOut(t *testing.T) {
	u := manifest(t, session, set("spec.sandbox", object{"network": "none"}))
	if err := create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if mode, _, _ := unstructured.NestedString(u.Object, "spec", "sandbox", "mode"); mode != "read-only" {
		t.Errorf("mode = %q, want read-only", mode)
	}
}

// Status is the operator's: who may write sessions cannot write it by the way.
func TestStatusIsWrittenThroughItsSubresourceAlone(t *testing.T) {
	u := manifest(t, session, set("status.observedGeneration", int64(7)), set("status.podName", "mine"))
	if err := create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(object{"observedGeneration": int64(-1)}, u.Object["status"]); diff != "" {
		t.Errorf("status after create (-want +got):\n%s", diff)
	}
	set("status", object{"observedGeneration": int64(1), "applied": object{
		"mode": "read-only", "network": "none", "approval": "never", "digest": strings.Repeat("a", 64),
		"generation": int64(1), "time": "2026-01-02T03:04:05Z",
	}})(u.Object)
	if err := api.Status().Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if mode, _, _ := unstructured.NestedString(u.Object, "status", "applied", "mode"); mode != "read-only" {
		t.Errorf("status.applied.mode = %q, want read-only", mode)
	}
}
