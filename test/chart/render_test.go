// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	psaapi "k8s.io/pod-security-admission/api"
	psa "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

var withModel = []string{
	"--set", "defaultClass.model.baseURL=https://api.deepseek.com/v1", "--set", "defaultClass.model.defaultName=deepseek-chat",
}

// renderings are the values of each golden file.
var renderings = map[string][]string{
	"default-values": {},
	"with-model":     withModel,
	"upgrade":        append([]string{"--is-upgrade"}, withModel...),
	"all-values": append([]string{
		"--set", "image.repository=registry.example/a", "--set", "image.tag=123456789012", "--set", "image.pullPolicy=Always",
		"--set", "image.pullSecrets[0].name=pull", "--set", "nodeSelector.disk=fast", "--set", "tolerations[0].operator=Exists",
		"--set", "resources.limits.memory=1Gi", "--set", "metrics.service=true", "--set", "metrics.serviceMonitor=true", "--set", "replicas=2",
		"--set", "defaultClass.name=strict", "--set", "defaultClass.toolsImage=debian:13", "--set", "defaultClass.allowedTools={registry.example/team/*,debian}", "--set", "defaultClass.systemPrompt=Be brief.",
		"--set", "defaultClass.model.allowedNames={a,b}", "--set", "defaultClass.model.keySecretName=model-key",
		"--set", "defaultClass.model.caBundle=PEM", "--set", "defaultClass.model.insecureHTTP=true", "--set", "defaultClass.ceiling.maxMode=read-only",
		"--set", "defaultClass.model.provider=Anthropic", "--set", "defaultClass.model.contextWindow=200000", "--set", "defaultClass.model.returnReasoning=true", "--set", "defaultClass.limits.maxTurns=5",
		"--set", "defaultClass.ceiling.onExceed=Reject", "--set", "defaultClass.resources.toolsRW.limits.cpu=2",
		"--set", "admission.rights=false", "--set", "admission.sealPods=true", "--set", "users.modes={read-only}", "--set", "users.networkOpen=false",
		"--set", "users.classes={strict,loose}", "--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
		"--set", "defaultClass.security.writableRootFilesystem=true", "--set", "defaultClass.env[0].name=CI", "--set-string", "defaultClass.env[0].value=true", "--set", "defaultClass.terminationGracePeriodSeconds=60",
		"--set", "defaultClass.runtimeClassName=gvisor", "--set", "defaultClass.scheduling.priorityClassName=batch", "--set", "defaultClass.scheduling.nodeSelector.agents=only",
		"--set", "defaultClass.security.toolsUser=1001", "--set", "defaultClass.tools={read,grep}", "--set", "defaultClass.allowedNamespaces.from=Selector", "--set", "defaultClass.allowedNamespaces.selector.matchLabels.agents=yes", "--set", "defaultClass.egress.modelCIDRs={203.0.113.7/32}", "--set", "defaultClass.egress.dns.type=None", "--set", "defaultClass.storage.type=EmptyDir", "--set", "defaultClass.storage.size=5Gi",
	}, withModel...),
}

func render(t *testing.T, args ...string) string {
	t.Helper()
	return mustHelm(t, append([]string{"template", "agentsession", chartDir, "--namespace", "agentsession-system", "--kube-version", "1.33.0"}, args...)...)
}

// documents splits a rendering and leaves out the CRDs, which are compared with their source elsewhere.
func documents(rendering string) (crds, others []string) {
	for d := range strings.SplitSeq("\n"+rendering, "\n---\n") {
		switch {
		case strings.Contains(d, "\nkind: CustomResourceDefinition\n"):
			crds = append(crds, d)
		case strings.TrimSpace(d) != "":
			others = append(others, strings.TrimSpace(d))
		}
	}
	return crds, others
}

func TestRenderingsAreAsReviewed(t *testing.T) {
	for name, args := range renderings {
		t.Run(name, func(t *testing.T) {
			_, others := documents(render(t, args...))
			got := strings.Join(others, "\n---\n") + "\n"
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v (run the test with -update, then read the file)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
	files, _ := filepath.Glob("testdata/*")
	for _, f := range files {
		if _, ok := renderings[strings.TrimSuffix(filepath.Base(f), ".yaml")]; !ok {
			t.Errorf("%s belongs to no rendering: remove it", f)
		}
	}
}

// The chart carries its own copies of what is generated. Here they are the same.
func TestTheChartHasWhatIsGenerated(t *testing.T) {
	for _, dir := range []string{"crd", "rbac"} {
		source, chart := files(t, "../../config/"+dir), files(t, chartDir+"/files/"+dir)
		if diff := cmp.Diff(source, chart); diff != "" || len(source) == 0 {
			t.Errorf("config/%s and the chart's files/%s differ: run make generate (-config +chart):\n%s", dir, dir, diff)
		}
	}
	crds, _ := documents(render(t))
	if len(crds) != 3 {
		t.Errorf("%d CRDs are rendered, want 3", len(crds))
	}
	for _, crd := range crds {
		if !strings.Contains(crd, "helm.sh/resource-policy: keep") {
			t.Errorf("a CRD would be deleted with the release, and all sessions with it:\n%.300s", crd)
		}
	}
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(p)] = string(b)
	}
	return found
}

// The operator's own pod passes the Pod Security Standard restricted.
func TestTheManagerIsRestricted(t *testing.T) {
	_, others := documents(render(t, renderings["all-values"]...))
	var d appsv1.Deployment
	for _, doc := range others {
		if strings.Contains(doc, "\nkind: Deployment\n") {
			if err := yaml.UnmarshalStrict([]byte(doc), &d); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d.Name == "" {
		t.Fatal("no Deployment is rendered")
	}
	checks, err := psa.NewEvaluator(psa.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	for _, r := range checks.EvaluatePod(restricted, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec) {
		if !r.Allowed {
			t.Errorf("not restricted: %s: %s", r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
}

func TestTheChartPassesHelmsOwnChecks(t *testing.T) {
	mustHelm(t, append([]string{"lint", "--strict", chartDir}, withModel...)...)
}

func TestValuesThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a misspelt value":      {[]string{"--set", "defaultClass.modell.baseURL=x"}, "'modell' not allowed"},
		"an unknown provider":   {[]string{"--set", "defaultClass.model.provider=OpenAI"}, "'OpenAIChat', 'Anthropic'"},
		"an unknown mode":       {[]string{"--set", "defaultClass.ceiling.maxMode=all"}, "'read-only', 'workspace-write', 'danger-full-access'"},
		"an unknown policy":     {[]string{"--set", "image.pullPolicy=Sometimes"}, "'Always', 'IfNotPresent', 'Never'"},
		"an endpoint, no model": {[]string{"--set", "defaultClass.model.baseURL=https://x/v1"}, "defaultClass.model.defaultName is not set: name the model"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t.Context(), append([]string{"template", "agentsession", chartDir}, tc.args...)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("helm template: %v, want words %q", err, tc.want)
			}
		})
	}
}
