// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/xml"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/wire"
)

var sample = Report{
	Where: Where{Kernel: "6.18 x86_64", Runtime: "runc", Container: "tools-rw", User: 7, NoNewPrivs: true, Seccomp: true,
		Enforcement: wire.Enforcement{Level: wire.LevelFull, LandlockABI: 7, Layers: []string{"landlock", "seccomp"}}},
	Findings: []Finding{
		{"create", policy.ReadOnly, Pass, ""},
		{"a <row> & \"more\": #1", policy.WorkspaceWrite, Fail, "was refused: \x01 \"x\"\nand more"},
		{"mount", policy.DangerFullAccess, Skip, "the kernel has no signal scopes (Landlock ABI 6)"},
	},
}

func TestTheYAMLReportIsYAML(t *testing.T) {
	var b bytes.Buffer
	if err := sample.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Where                   map[string]any
		Passed, Failed, Skipped int
		Findings                []map[string]string
	}
	if err := yaml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	want := []map[string]string{
		{"row": "create", "mode": "read-only", "verdict": "pass"},
		{"row": "a <row> & \"more\": #1", "mode": "workspace-write", "verdict": "fail", "why": "was refused: \x01 \"x\"\nand more"},
		{"row": "mount", "mode": "danger-full-access", "verdict": "skip", "why": "the kernel has no signal scopes (Landlock ABI 6)"},
	}
	if diff := cmp.Diff(want, got.Findings); diff != "" || got.Passed != 1 || got.Failed != 1 || got.Skipped != 1 || got.Where["kernel"] != "6.18 x86_64" {
		t.Errorf("the report (-want +got):\n%s\n%s", diff, b.String())
	}
}

func TestTheJUnitReportIsXML(t *testing.T) {
	var b bytes.Buffer
	if err := sample.WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	var got junitSuite
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if got.Tests != 3 || got.Failures != 1 || got.Skipped != 1 || len(got.Cases) != 3 || got.Cases[1].Failure == nil || got.Cases[2].Skipped == nil {
		t.Errorf("the report is %s", b.String())
	}
}

// A suite that tried nothing, or could not go on, has not passed.
func TestPassed(t *testing.T) {
	passed := Finding{"a", policy.ReadOnly, Pass, ""}
	for name, tc := range map[string]struct {
		r    Report
		want bool
	}{
		"all of it":      {Report{Findings: []Finding{passed}}, true},
		"nothing":        {Report{}, false},
		"a failure":      {Report{Findings: []Finding{passed, {"b", policy.ReadOnly, Fail, ""}}}, false},
		"not to the end": {Report{Findings: []Finding{passed}, Trouble: "x"}, false},
	} {
		if got := tc.r.Passed(); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestReportsOfNoForm(t *testing.T) {
	for name, ok := range map[string]bool{"a.yaml": true, "a.yml": true, "a.xml": true, "a.json": false, "report": false} {
		if _, err := WriterFor(name); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// With privileges, some rows would do what they try.
func TestTheSuiteRunsWithoutPrivilegesOnly(t *testing.T) {
	const fit = "Name:\tx\nNoNewPrivs:\t1\nCapEff:\t0000000000000000\n"
	for name, tc := range map[string]struct {
		user   int
		status string
		ok     bool
	}{
		"a tools container":    {65533, fit + "x", true},
		"root":                 {0, fit + "x", false},
		"capabilities":         {65533, "\nNoNewPrivs:\t1\nCapEff:\t0000000000000001\n", false},
		"privileges to be had": {65533, "\nNoNewPrivs:\t0\nCapEff:\t0000000000000000\n", false},
		"nothing is known":     {65533, "", false},
	} {
		if err := checkHarmless(tc.user, tc.status); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
