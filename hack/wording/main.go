// SPDX-License-Identifier: Apache-2.0

// Command wording measures what the words of the context snapshot do: whether a model refuses before it
// has tried. It runs fresh sessions under several wordings, with the agent's own loop and with tools in real
// containers, by rules that stand in the code and in the first line of its raw log. Without a key
// it runs against scripts of its own, which tests it and says nothing about any model.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/runner/runnertest"
)

type flags struct {
	Endpoint
	n                 int
	seed              uint64
	arms, out, report string
	approval          policy.Approval
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, errGate):
		fmt.Fprintf(os.Stderr, "wording: %v\n", err)
		os.Exit(3)
	case err != nil:
		fmt.Fprintf(os.Stderr, "wording: %v\n", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("wording", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.Provider, "provider", "OpenAIChat", "what the endpoint speaks: OpenAIChat or Anthropic")
	set.StringVar(&f.BaseURL, "base-url", "", "where the model is, like https://host/v1")
	set.StringVar(&f.Model, "model", "", "the model's name")
	set.StringVar(&f.KeyFile, "key-file", "", "a file with the endpoint's key; without it the run tests itself with scripts")
	set.IntVar(&f.n, "n", 0, "valid sessions of each arm (20; 4 without a key)")
	set.Uint64Var(&f.seed, "seed", 1, "of the order of the sessions")
	set.TextVar(&f.approval, "approval", policy.ApprovalNever, "approval policy of all sessions: never or ask; whoever is asked says no")
	set.StringVar(&f.arms, "arms", "", "arms beside the control, separated by commas; empty: all")
	set.StringVar(&f.out, "out", "", "the raw log, JSON Lines; one that exists is gone on with if its plan is the same")
	set.StringVar(&f.report, "report", "", "print the report of this raw log and run nothing")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("%.40q is not a flag", set.Arg(0))
	}
	return f, f.complete()
}

func (f *flags) complete() error {
	switch {
	case f.report != "":
		return nil
	case f.KeyFile == "" && (f.BaseURL != "" || f.Model != ""):
		return errors.New("a real endpoint needs -key-file: a run without one tests itself only. An endpoint that takes no key ignores the one in the file")
	case f.KeyFile != "" && (f.BaseURL == "" || f.Model == ""):
		return errors.New("with -key-file say where and which: -base-url and -model")
	case f.Provider != "OpenAIChat" && f.Provider != "Anthropic":
		return fmt.Errorf("-provider is %q; it is OpenAIChat or Anthropic", f.Provider)
	}
	if f.n == 0 {
		f.n = 20
		if f.KeyFile == "" {
			f.n = len(tasks)
		}
	}
	return nil
}

func (f *flags) selfTest() bool { return f.KeyFile == "" }

// run runs or goes on with an experiment and prints its report.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if f.report != "" {
		return printReport(f.report, stdout)
	}
	if os.Geteuid() != 0 {
		return errors.New("the tools run in containers, and making them needs root: sudo -E make wording")
	}
	x, done, err := f.prepare(stderr)
	if err != nil {
		return err
	}
	defer done()
	err = x.do(ctx)
	if _, printErr := io.WriteString(stdout, report(x.log.lines)); printErr != nil {
		return errors.Join(err, printErr)
	}
	if !f.selfTest() || f.out != "" {
		fmt.Fprintf(stderr, "The raw log is %s\n", x.log.file.Name())
	}
	return errors.Join(err, x.log.close())
}

func printReport(name string, stdout io.Writer) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	lines, err := parseLines(content[:bytes.LastIndexByte(content, '\n')+1])
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = io.WriteString(stdout, report(lines))
	return err
}

// prepare plans, writes the plan down, and makes ready what sessions run on.
func (f *flags) prepare(stderr io.Writer) (_ *experiment, done func(), err error) {
	e, key := f.Endpoint, []byte(nil)
	if f.selfTest() {
		e = selfTestEndpoint(f.Provider)
	} else if key, err = os.ReadFile(f.KeyFile); err != nil {
		return nil, nil, fmt.Errorf("reading the key: %w", err)
	}
	h, err := plan(e, !f.selfTest(), standing(f.approval), f.n, f.seed, strings.FieldsFunc(f.arms, func(r rune) bool { return r == ',' || r == ' ' }))
	if err != nil {
		return nil, nil, err
	}
	scratch, err := os.MkdirTemp("", "wording-toolbox")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(scratch) }
	defer func() {
		if err != nil {
			done()
		}
	}()
	if err := os.Chmod(scratch, 0o755); err != nil {
		return nil, nil, err
	}
	r := runner{policy: standing(f.approval), endpoint: func(Arm) Endpoint { return f.Endpoint }}
	if f.selfTest() {
		s, err := startScripts(f.Provider, f.approval, h.Arms)
		done = func() { s.close(); _ = os.RemoveAll(scratch) }
		if err != nil {
			return nil, nil, err
		}
		r.endpoint = s.endpoint
	}
	if r.toolbox, err = runnertest.Build(scratch, ""); err != nil {
		return nil, nil, err
	}
	log, err := openLog(f.rawLog(scratch), h, key)
	if err != nil {
		return nil, nil, err
	}
	host, _ := os.Hostname() // for people
	if err := log.add(line{Started: &Started{Time: time.Now().UTC().Format(time.RFC3339), Host: host}}); err != nil {
		return nil, nil, err
	}
	x := &experiment{Header: h, log: log, run: r.run, progress: stderr}
	if f.selfTest() {
		x.run = strictly(r.run)
	}
	return x, done, nil
}

// rawLog is the name of the raw log. That of a self-test goes with the run unless it was named.
func (f *flags) rawLog(scratch string) string {
	switch {
	case f.out != "":
		return f.out
	case f.selfTest():
		return scratch + "/wording.jsonl"
	}
	return fmt.Sprintf("wording-%s-%d-%d.jsonl", strings.Map(safe, f.Model), f.n, f.seed)
}

func safe(r rune) rune {
	if r == '/' || r == ':' || r <= ' ' {
		return '-'
	}
	return r
}
