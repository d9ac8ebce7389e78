// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/pem"
	"slices"
	"strings"
	"testing"
)

const class = `
apiVersion: agentsession.dev/v1alpha1
kind: AgentSessionClass
spec:
  images: {tools: "debian:13"}
  model: {provider: OpenAIChat, baseURL: "https://api.example.com/v1", defaultName: deepseek-chat}
  ceiling: {maxMode: danger-full-access}
`

const (
	schemeRule   = "baseURL must begin with https://"
	urlRule      = "baseURL must be a URL with a scheme and a host, without user, query and fragment"
	patternRule  = "a pattern must be an image with * for what may differ"
	registryRule = "a pattern must have no * before its first slash"
	variableRule = "_ and what begins with BASH, GIT_CONFIG or LD_ belong to the sandbox and the shell"
	usersRule    = "agentUser and toolsUser must differ (65532 and 65533 where unset)"
)

func both(edits ...edit) edit {
	return func(o object) {
		for _, e := range edits {
			e(o)
		}
	}
}

func TestClassesThatAreRefusedOrAdmitted(t *testing.T) {
	refusals{
		"the smallest class":      {both(), ""},
		"a minimum":               {set("spec.enforcement", object{"minimum": "Mount"}), ""},
		"no minimum":              {set("spec.enforcement", object{}), ""},
		"a grace":                 {set("spec.termination", object{"graceSeconds": int64(60)}), ""},
		"no grace":                {set("spec.termination", object{}), ""},
		"a negative grace":        {set("spec.termination", object{"graceSeconds": int64(-1)}), "spec.termination.graceSeconds: Invalid value"},
		"a grace beyond limits":   {set("spec.termination", object{"graceSeconds": int64(61)}), "spec.termination.graceSeconds: Invalid value"},
		"a minimum of nothing":    {set("spec.enforcement", object{"minimum": "None"}), `supported values: "Full", "Files", "Mount"`},
		"without a model":         {unset("spec.model"), "spec.model: Required value"},
		"without a ceiling":       {unset("spec.ceiling"), "spec.ceiling: Required value"},
		"without a tools image":   {set("spec.images", object{}), "spec.images.tools: Required value"},
		"a tools image of blanks": {set("spec.images.tools", " "), "spec.images.tools: Invalid value"},
		"a huge tools image":      {set("spec.images.tools", strings.Repeat("a", 513)), "spec.images.tools: Too long"},
		"an empty agent image":    {set("spec.images.agent", ""), "spec.images.agent: Invalid value"},
		"patterns of images": {set("spec.images.allowedTools", []any{"debian", "debian:1*", "*", "registry.example:5000/team/*", "localhost/a/*/c-*:v*",
			"registry.example/team/x:1*@sha256:*"}), ""},
		"the same pattern twice":   {set("spec.images.allowedTools", []any{"debian", "debian"}), "Duplicate value"},
		"an empty pattern":         {set("spec.images.allowedTools", []any{""}), patternRule},
		"a pattern with a class":   {set("spec.images.allowedTools", []any{"debian:1[0-9]"}), patternRule},
		"a pattern with a mark":    {set("spec.images.allowedTools", []any{"debian:1?"}), patternRule},
		"a pattern with a blank":   {set("spec.images.allowedTools", []any{"debian "}), patternRule},
		"a pattern of an escape":   {set("spec.images.allowedTools", []any{`debian\*`}), patternRule},
		"a pattern that is a URL":  {set("spec.images.allowedTools", []any{"https://registry.example/*"}), patternRule},
		"a pattern without a name": {set("spec.images.allowedTools", []any{"registry.example/team/"}), patternRule},
		"any registry":             {set("spec.images.allowedTools", []any{"*/team/tools"}), registryRule},
		"a registry that ends so":  {set("spec.images.allowedTools", []any{"registry.example*/team/tools"}), registryRule},
		"any port":                 {set("spec.images.allowedTools", []any{"registry.example:*/team/tools"}), registryRule},
		"too many patterns":        {set("spec.images.allowedTools", numbered(65)), "spec.images.allowedTools: Too many"},
		"a pattern beyond limits":  {set("spec.images.allowedTools", []any{strings.Repeat("a", 513)}), "spec.images.allowedTools[0]: Too long"},
		"Anthropic's messages":     {set("spec.model.provider", "Anthropic"), ""},
		"another provider":         {set("spec.model.provider", "OpenAI"), `supported values: "OpenAIChat", "Anthropic"`},
		"plain http":               {set("spec.model.baseURL", "http://model.example/v1"), schemeRule},
		"plain http, allowed":      {both(set("spec.model.baseURL", "http://model.example/v1"), set("spec.model.insecureHTTP", true)), ""},
		"plain http, not allowed":  {both(set("spec.model.baseURL", "http://model.example/v1"), set("spec.model.insecureHTTP", false)), schemeRule},
		"another scheme":           {both(set("spec.model.baseURL", "ftp://model.example/v1"), set("spec.model.insecureHTTP", true)), schemeRule},
		"a base URL with a port":   {set("spec.model.baseURL", "https://10.0.0.1:8443/v1"), ""},
		"no URL":                   {set("spec.model.baseURL", "api.example.com"), urlRule},
		"a path alone":             {set("spec.model.baseURL", "/v1"), urlRule},
		"a URL without a host":     {set("spec.model.baseURL", "https:///v1"), urlRule},
		"a URL with a user":        {set("spec.model.baseURL", "https://me:secret@api.example.com/v1"), urlRule},
		"a URL with a query":       {set("spec.model.baseURL", "https://api.example.com/v1?key=secret"), urlRule},
		"a URL with a fragment":    {set("spec.model.baseURL", "https://api.example.com/v1#x"), urlRule},
		"a URL beyond limits":      {set("spec.model.baseURL", "https://api.example.com/"+strings.Repeat("a", 2048)), "spec.model.baseURL: Too long"},
		"authorities of its own":   {set("spec.model.caBundle", pemOf("CERTIFICATE")), ""},
		"authorities for http":     {both(set("spec.model.baseURL", "http://model.example/v1"), set("spec.model.insecureHTTP", true), set("spec.model.caBundle", pemOf("CERTIFICATE"))), "caBundle is for a baseURL of https"},
		"authorities of no PEM":    {set("spec.model.caBundle", "MIIB"), "caBundle must hold certificates in PEM"},
		"an authority and its key": {set("spec.model.caBundle", pemOf("CERTIFICATE")+pemOf("RSA PRIVATE KEY")), "caBundle holds a private key"},
		"no authority at all":      {set("spec.model.caBundle", ""), "spec.model.caBundle: Invalid value"},
		"too many authorities":     {set("spec.model.caBundle", pemOf("CERTIFICATE")+strings.Repeat("#", 65536)), "spec.model.caBundle: Too long"},
		"traces":                   {set("spec.telemetry", object{"otlpEndpoint": "https://collector.example:4318"}), ""},
		"traces over http":         {set("spec.telemetry", object{"otlpEndpoint": "http://collector.example:4318"}), "otlpEndpoint must begin with https://"},
		"traces over http, wanted": {set("spec.telemetry", object{"otlpEndpoint": "http://collector.example:4318", "insecureHTTP": true}), ""},
		"traces to no URL":         {set("spec.telemetry", object{"otlpEndpoint": "collector.example:4318/"}), "otlpEndpoint must be a URL"},
		"no default model":         {unset("spec.model.defaultName"), "spec.model.defaultName: Required value"},
		"an empty default model":   {set("spec.model.defaultName", ""), "spec.model.defaultName: Invalid value"},
		"allowed models":           {set("spec.model.allowedNames", []any{"a", "b"}), ""},
		"the same model twice":     {set("spec.model.allowedNames", []any{"a", "a"}), "Duplicate value"},
		"an empty allowed model":   {set("spec.model.allowedNames", []any{""}), "spec.model.allowedNames[0]: Invalid value"},
		"too many allowed models":  {set("spec.model.allowedNames", numbered(65)), "spec.model.allowedNames: Too many"},
		"reasoning goes back":      {set("spec.model.returnReasoning", true), ""},
		"a context window":         {set("spec.model.contextWindow", int64(128000)), ""},
		"a context window of few":  {set("spec.model.contextWindow", int64(4095)), "spec.model.contextWindow: Invalid value"},
		"a key Secret":             {set("spec.model.keySecretName", "model-key"), ""},
		"no Secret's name":         {set("spec.model.keySecretName", "Model_Key"), "spec.model.keySecretName: Invalid value"},
		"an unknown ceiling":       {set("spec.ceiling.maxMode", "all"), "spec.ceiling.maxMode: Unsupported value"},
		"no maxMode":               {set("spec.ceiling", object{"onExceed": "Clamp"}), "spec.ceiling.maxMode: Required value"},
		"another network":          {set("spec.ceiling.maxNetwork", "host"), `spec.ceiling.maxNetwork: Unsupported value: "host": supported values: "none", "open"`},
		"an open network":          {set("spec.ceiling.maxNetwork", "open"), ""},
		"approval by asking":       {set("spec.ceiling.maxApproval", "ask"), ""},
		"nobody is asked":          {set("spec.ceiling.maxApproval", "never"), ""},
		"another approval":         {set("spec.ceiling.maxApproval", "always"), `spec.ceiling.maxApproval: Unsupported value: "always": supported values: "ask", "never"`},
		"an unknown onExceed":      {set("spec.ceiling.onExceed", "Warn"), `supported values: "Clamp", "Reject"`},
		"onExceed Reject":          {set("spec.ceiling.onExceed", "Reject"), ""},
		"root as the agent":        {set("spec.security", object{"agentUser": int64(0)}), "spec.security.agentUser: Invalid value: 0"},
		"root as the tools":        {set("spec.security", object{"toolsUser": int64(0)}), "spec.security.toolsUser: Invalid value: 0"},
		"root as the group":        {set("spec.security", object{"fsGroup": int64(0)}), "spec.security.fsGroup: Invalid value: 0"},
		"a user beyond limits":     {set("spec.security", object{"agentUser": int64(1) << 31}), "spec.security.agentUser: Invalid value"},
		"two users":                {set("spec.security", object{"agentUser": int64(7), "toolsUser": int64(8)}), ""},
		"one user for both":        {set("spec.security", object{"agentUser": int64(7), "toolsUser": int64(7)}), usersRule},
		"the tools' default user":  {set("spec.security", object{"agentUser": int64(65533)}), usersRule},
		"the agent's default user": {set("spec.security", object{"toolsUser": int64(65532)}), usersRule},
		"resources":                {set("spec.resources.toolsRW.limits", object{"cpu": "2", "memory": "2Gi", "ephemeral-storage": "4Gi"}), ""},
		"a device as a request":    {set("spec.resources.toolsRW.requests", object{"nvidia.com/gpu": int64(1)}), "only cpu, memory and ephemeral-storage can be requested: remove the others"},
		"a device as a limit":      {set("spec.resources.agent.limits", object{"hugepages-2Mi": "2Mi"}), "only cpu, memory and ephemeral-storage can be limited: remove the others"},
		"resources that are none":  {set("spec.resources.toolsRO.limits", object{"cpu": "many"}), "spec.resources.toolsRO.limits.cpu: Invalid value"},
		"a limit below a request":  {set("spec.resources.agent", object{"requests": object{"memory": "2Gi"}, "limits": object{"memory": "1Gi"}}), "no limit may be below its request"},
		"a limit at its request":   {set("spec.resources.agent", object{"requests": object{"memory": "1Gi"}, "limits": object{"memory": "1024Mi"}}), ""},
		"a negative request":       {set("spec.resources.agent", object{"requests": object{"cpu": "-1"}}), "no request may be negative"},
		"a negative limit":         {set("spec.resources.agent", object{"limits": object{"cpu": "-1"}}), "no limit may be negative"},
		"a writable root":          {set("spec.security.writableRootFilesystem", true), ""},
		"time to end":              {set("spec.terminationGracePeriodSeconds", int64(60)), ""},
		"variables":                {variables("PATH", "/opt/bin:/usr/bin", "LANG", "", "HTTPS_PROXY", "http://proxy:3128", "_X1", "$(x)\n"), ""},
		"a variable of a blank":    {variables("A B", "x"), "spec.env[0].name: Invalid value"},
		"a variable of a number":   {variables("1A", "x"), "spec.env[0].name: Invalid value"},
		"a variable of no name":    {variables("", "x"), "spec.env[0].name: Invalid value"},
		"a variable of two lines":  {variables("A\n", "x"), "spec.env[0].name: Invalid value"},
		"a variable with its end":  {variables("A", "x\x00y"), "spec.env[0].value: Invalid value"},
		"a variable's huge name":   {variables(strings.Repeat("A", 129), "x"), "spec.env[0].name: Too long"},
		"a variable's huge value":  {variables("A", strings.Repeat("x", 2049)), "spec.env[0].value: Too long"},
		"a variable twice":         {variables("A", "x", "A", "y"), "Duplicate value"},
		"the home directory":       {variables("HOME", "/workspace"), variableRule},
		"the temporary directory":  {variables("TMPDIR", "/workspace"), variableRule},
		"what bash runs first":     {variables("BASH_ENV", "/workspace/x"), variableRule},
		"what sh runs first":       {variables("ENV", "/workspace/x"), variableRule},
		"what the linker loads":    {variables("LD_PRELOAD", "/workspace/x.so"), variableRule},
		"what git is told":         {variables("GIT_CONFIG_COUNT", "0"), variableRule},
		"what the shell sets":      {variables("_", "x"), variableRule},
		"too many variables":       {set("spec.env", many(33)), "spec.env: Too many"},
		"history and updates":      {both(set("spec.history", object{"messages": int64(0)}), set("spec.updateStrategy", "WhenIdle")), ""},
		"less history than none":   {set("spec.history", object{"messages": int64(-1)}), "spec.history.messages: Invalid value"},
		"an unknown strategy":      {set("spec.updateStrategy", "Always"), `supported values: "WhenIdle", "OnRestart"`},
		"small storage":            {set("spec.storage", object{"type": "EmptyDir", "size": "1Ki"}), sizeRule},
		"a size of many digits":    {set("spec.storage", object{"type": "EmptyDir", "size": strings.Repeat("1", 33)}), "size has more than 32 characters"},
		"another storage":          {set("spec.storage", object{"type": "HostPath"}), `supported values: "PersistentVolumeClaim", "EmptyDir"`},
		"a claim that is retained": {set("spec.storage", object{"type": "PersistentVolumeClaim", "storageClassName": "fast", "retention": "Retain"}), ""},
		"an unknown retention":     {set("spec.storage", object{"type": "PersistentVolumeClaim", "retention": "Keep"}), `supported values: "Delete", "Retain"`},
		"a storage class for none": {set("spec.storage", object{"type": "EmptyDir", "storageClassName": "fast"}), "storageClassName is for a PersistentVolumeClaim"},
		"a huge system prompt":     {set("spec.systemPrompt", strings.Repeat("a", 65537)), "spec.systemPrompt: Too long"},
		"a wide system prompt":     {set("spec.systemPrompt", strings.Repeat("ä", 32769)), "systemPrompt is larger than 65536 bytes: shorten it"},
		"limits":                   {set("spec.limits", object{"maxTurns": int64(10), "maxStepsPerTurn": int64(5), "maxTotalTokens": int64(1000)}), ""},
		"defaults":                 {set("spec.defaults", object{"idlePolicy": object{"suspendAfterSeconds": int64(60)}, "limits": object{"maxTurns": int64(5)}}), ""},
		"an empty default policy":  {set("spec.defaults", object{"idlePolicy": object{}}), "idlePolicy is empty"},
		"a default in the past":    {set("spec.defaults", object{"idlePolicy": object{"suspendAfterSeconds": int64(60), "deleteAfterSeconds": int64(60)}}), "deleteAfterSeconds must be greater"},
		"no step at all":           {set("spec.limits.maxStepsPerTurn", int64(0)), "spec.limits.maxStepsPerTurn: Invalid value"},
		"what does not exist":      {set("spec.hostNetwork", true), `unknown field "spec.hostNetwork"`},
	}.run(t, class)
}

func TestAClassCanChange(t *testing.T) {
	refusals{
		"the ceiling": {set("spec.ceiling.maxMode", "read-only"), ""},
		"the model":   {set("spec.model.defaultName", "other"), ""},
		"the images":  {set("spec.images.tools", "debian:14"), ""},
	}.runUpdates(t, class)
}

func pemOf(kind string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte("what is inside the apiserver cannot read")}))
}

// variables are pairs of a name and a value.
func variables(pairs ...string) edit {
	var env []any
	for p := range slices.Chunk(pairs, 2) {
		env = append(env, object{"name": p[0], "value": p[1]})
	}
	return set("spec.env", env)
}

func many(n int) (env []any) {
	for _, name := range numbered(n) {
		env = append(env, object{"name": name})
	}
	return env
}

func numbered(n int) []any {
	var l []any
	for i := range n {
		l = append(l, "m"+strings.Repeat("x", i))
	}
	return l
}
