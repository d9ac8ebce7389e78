// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentsession-dev/operator/internal/wire"
)

// Report is what a run of the suite has found, and where.
type Report struct {
	Where    Where
	Findings []Finding
	Trouble  string // why the suite could not go on, if it could not
}

// Where describes the node as a call sees it.
type Where struct {
	Kernel      string // release and machine
	Runtime     string // runtime class, as told by who runs the suite
	Container   string // tools container
	User        int
	NoNewPrivs  bool // before anything of the sandbox: what the pod gives
	Seccomp     bool // likewise
	Enforcement wire.Enforcement
}

// Count is how many findings there are of a verdict.
func (r Report) Count(v Verdict) (n int) {
	for _, f := range r.Findings {
		if f.Verdict == v {
			n++
		}
	}
	return n
}

// Passed reports whether the suite came to its end, tried something, and nothing failed.
func (r Report) Passed() bool {
	return r.Trouble == "" && r.Count(Fail) == 0 && r.Count(Pass) > 0
}

// WriterFor gives the form of a report that a file name asks for.
func WriterFor(name string) (func(Report, io.Writer) error, error) {
	switch filepath.Ext(name) {
	case ".yaml", ".yml":
		return Report.WriteYAML, nil
	case ".xml":
		return Report.WriteJUnit, nil
	}
	return nil, fmt.Errorf("the report %q must end in .yaml or in .xml (JUnit)", name)
}

// Save writes the report into files, in the forms that their names ask for.
func Save(r Report, names ...string) error {
	for _, name := range names {
		write, err := WriterFor(name)
		if err != nil {
			return err
		}
		f, err := os.Create(name)
		if err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
		if err := errors.Join(write(r, f), f.Close()); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	return nil
}

// WriteYAML writes the report as YAML. Every value is a JSON value, which is YAML too.
func (r Report) WriteYAML(w io.Writer) error {
	var b strings.Builder
	line := func(indent, key string, v any) {
		text, err := json.Marshal(v)
		if err != nil { // strings, numbers and truth values have a form
			text = []byte("null")
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, key, text)
	}
	b.WriteString("where:\n")
	line("  ", "kernel", r.Where.Kernel)
	line("  ", "landlockABI", r.Where.Enforcement.LandlockABI)
	line("  ", "level", r.Where.Enforcement.Level)
	line("  ", "layers", r.Where.Enforcement.Layers)
	line("  ", "detail", r.Where.Enforcement.Detail)
	line("  ", "runtime", r.Where.Runtime)
	line("  ", "container", r.Where.Container)
	line("  ", "user", r.Where.User)
	line("  ", "noNewPrivs", r.Where.NoNewPrivs)
	line("  ", "seccomp", r.Where.Seccomp)
	line("", "passed", r.Count(Pass))
	line("", "failed", r.Count(Fail))
	line("", "skipped", r.Count(Skip))
	line("", "trouble", r.Trouble)
	b.WriteString("findings:\n")
	for _, f := range r.Findings {
		line("- ", "row", f.Row)
		line("  ", "mode", f.Mode.String())
		line("  ", "verdict", f.Verdict)
		if f.Why != "" {
			line("  ", "why", f.Why)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type junitSuite struct {
	XMLName    xml.Name        `xml:"testsuite"`
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
	Error      string          `xml:"system-err,omitempty"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Failure *junitOf `xml:"failure"`
	Skipped *junitOf `xml:"skipped"`
}

type junitOf struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes the report in the form that continuous integration reads.
func (r Report) WriteJUnit(w io.Writer) error {
	s := junitSuite{Name: "sandbox conformance", Tests: len(r.Findings), Failures: r.Count(Fail), Skipped: r.Count(Skip), Error: r.Trouble}
	if r.Trouble != "" {
		s.Errors = 1
	}
	e := r.Where.Enforcement
	for _, p := range [][2]string{
		{"kernel", r.Where.Kernel}, {"landlockABI", fmt.Sprint(e.LandlockABI)}, {"level", string(e.Level)},
		{"layers", strings.Join(e.Layers, ", ")}, {"detail", e.Detail}, {"runtime", r.Where.Runtime}, {"container", r.Where.Container},
		{"user", fmt.Sprint(r.Where.User)}, {"noNewPrivs", fmt.Sprint(r.Where.NoNewPrivs)}, {"seccomp", fmt.Sprint(r.Where.Seccomp)},
	} {
		s.Properties = append(s.Properties, junitProperty{p[0], p[1]})
	}
	for _, f := range r.Findings {
		c := junitCase{Class: f.Mode.String(), Name: f.Row}
		switch f.Verdict {
		case Fail:
			c.Failure = &junitOf{f.Why}
		case Skip:
			c.Skipped = &junitOf{f.Why}
		case Pass:
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
