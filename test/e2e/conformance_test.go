// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/conformance"
	"github.com/agentsession-dev/operator/internal/wire"
)

// suiteModel is the class of this test, and the namespace of its model.
const suiteModel = "agentsession-conformance"

// toolbox is the program in the tools containers.
const toolbox = "/toolbox/toolbox"

// outsideDir is an empty directory of the tools image, for a volume that is neither workspace nor temporary.
const outsideDir = "/home"

// Every promise once more, where it counts: in the pod of a session that is switched through the modes, by
// calls that its agent makes. What they did to the world is seen by a process beside them, in the
// container that holds the workspace writable.
func TestPromisesInASession(t *testing.T) {
	here := nodeIsHere(t)
	at := conformance.Place{Toolbox: toolbox, Workspace: wire.Workspace}
	if here {
		at.Outside = outsideDir
	}
	plan := installSuite(t, at)
	s := &session{t: t, key: client.ObjectKey{Namespace: newNamespace(t), Name: "s"}}
	must(t)(kube.Apply(t.Context(), manifest(s.key, suiteModel, policy.ReadOnly.String())))
	must(t)(kube.Kubectl(t.Context(), "-n", s.key.Namespace, "wait", "ags/s", "--for=condition=Ready", "--timeout=90s"))
	if here {
		s.mountOutside()
	}
	r := conformance.Report{Where: s.where()}
	if r.Where.Enforcement.Level != wire.LevelFull { // of a node elsewhere
		at.NoScopes = true
		plan = installSuite(t, at)
	}
	for _, m := range policy.Modes() {
		if m != policy.ReadOnly {
			s.switchTo(m.String())
		}
		r.Findings = append(r.Findings, s.conform(m, plan[m])...)
	}
	s.verifyLog()
	for _, f := range r.Findings {
		if f.Verdict == conformance.Fail || f.Verdict == conformance.Skip && here {
			t.Errorf("%s: %s: %s: %s", f.Mode, f.Row, f.Verdict, f.Why)
		}
	}
	if here && r.Where.Enforcement.Level != wire.LevelFull {
		t.Errorf("this node enforces %s", r.Where.Enforcement.Level)
	}
	if !r.Passed() || r.Count(conformance.Pass) < 400 && here {
		t.Errorf("only %d rows passed", r.Count(conformance.Pass))
	}
	t.Logf("%d passed, %d failed, %d skipped", r.Count(conformance.Pass), r.Count(conformance.Fail), r.Count(conformance.Skip))
	saveReport(t, r)
}

// installSuite starts a model that knows all calls that are to be made.
func installSuite(t *testing.T, at conformance.Place) suitePlan {
	t.Helper()
	plan := suitePlan{}
	for _, m := range policy.Modes() {
		todo, without, err := conformance.Attempts(at, m)
		if err != nil {
			t.Fatal(err)
		}
		plan[m] = modePlan{todo, without}
	}
	if err := kube.InstallModel(t.Context(), setup, suiteModel, plan.script(t)); err != nil {
		t.Fatal(err)
	}
	return plan
}

type modePlan struct {
	todo    []conformance.Attempt
	without []conformance.Finding
}

type suitePlan map[policy.Mode]modePlan

// callsPerStep is how many calls one answer of the model asks for.
const callsPerStep = 40

func suiteMessage(m policy.Mode) string { return "try everything in " + m.String() }

// script is what the model says: in each mode's turn the calls of its attempts, in their order.
func (p suitePlan) script(t *testing.T) string {
	t.Helper()
	type object = map[string]any
	var rules []object
	for _, m := range policy.Modes() {
		done := 0
		for some := range slices.Chunk(p[m].todo, callsPerStep) {
			var calls []object
			for _, a := range some {
				calls = append(calls, object{"name": a.Row.Try.Tool, "rawArguments": a.Arguments})
			}
			rules = append(rules, object{
				"when": object{"lastUser": suiteMessage(m), "toolResults": done}, "reply": object{"toolCalls": calls},
			})
			done += len(some)
		}
		rules = append(rules, object{"when": object{"lastUser": suiteMessage(m), "toolResults": done}, "reply": object{"text": "That was all."}})
	}
	b, err := json.Marshal(object{"version": 1, "models": []string{"replay"}, "rules": rules})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// conform has the agent try everything in the standing mode.
func (s *session) conform(m policy.Mode, p modePlan) []conformance.Finding {
	s.t.Helper()
	fixtures := make([]conformance.Fixtures, 0, len(p.todo))
	for _, a := range p.todo {
		fixtures = append(fixtures, a.Fixtures)
	}
	before := s.fixtures(m, conformance.DoPrepare, fixtures).States
	message := s.ask(suiteMessage(m))
	after := s.fixtures(m, conformance.DoDescribe, fixtures).States
	results := s.callsOf(message.Name)
	if len(results) != len(p.todo) {
		s.t.Fatalf("%s: %d calls have a result, want %d; the turn ended with %+v", m, len(results), len(p.todo), message.Status)
	}
	findings := p.without
	for i, a := range p.todo {
		findings = append(findings, a.Judge(results[i], before[i], after[i]))
	}
	s.fixtures(m, conformance.DoRemove, fixtures)
	return findings
}

// fixtures has something done to fixtures by a process in the container where calls can write, outside of their sandbox.
func (s *session) fixtures(m policy.Mode, do string, f []conformance.Fixtures) conformance.Account {
	s.t.Helper()
	order, err := json.Marshal(conformance.Order{Do: do, Fixtures: f})
	if err != nil {
		s.t.Fatal(err)
	}
	out := must(s.t)(kube.Feed(s.t.Context(), string(order), "-n", s.key.Namespace, "exec", "-i", s.pod(), "-c", wire.ToolsRW, "--",
		toolbox, "fixtures"))
	var a conformance.Account
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		s.t.Fatalf("%s in %s: %v: %.200s", do, m, err, out)
	}
	return a
}

// where describes the node as the cluster and the session know it.
func (s *session) where() conformance.Where {
	s.t.Helper()
	w := s.fixtures(policy.ReadOnly, conformance.DoDescribe, nil).Where
	var pod corev1.Pod
	var node corev1.Node
	if err := api.Get(s.t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: s.pod()}, &pod); err != nil {
		s.t.Fatal(err)
	}
	if err := api.Get(s.t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &node); err != nil {
		s.t.Fatal(err)
	}
	class := "the default"
	if pod.Spec.RuntimeClassName != nil {
		class = *pod.Spec.RuntimeClassName
	}
	w.Runtime = fmt.Sprintf("%s, runtime class: %s", node.Status.NodeInfo.ContainerRuntimeVersion, class)
	w.Container = wire.ToolsRO + " and " + wire.ToolsRW
	if e := s.get().Status.Enforcement; e != nil {
		w.Enforcement = wire.Enforcement{Level: wire.Level(e.Level), LandlockABI: int(e.LandlockABI), Layers: e.Layers}
	}
	return w
}

// saveReport writes the report where CONFORMANCE_REPORTS says.
func saveReport(t *testing.T, r conformance.Report) {
	t.Helper()
	dir := os.Getenv("CONFORMANCE_REPORTS")
	if dir == "" {
		return
	}
	if err := conformance.Save(r, filepath.Join(dir, "session.yaml"), filepath.Join(dir, "session.xml")); err != nil {
		t.Fatal(err)
	}
	t.Logf("reports are in %s", strings.TrimSuffix(dir, "/"))
}
