// SPDX-License-Identifier: Apache-2.0

// Command mutate takes single checks out of the agent, one at a time, and runs the tests that should
// notice. A check whose removal no test notices is one that the tests do not prove. Nothing in the
// tree is changed: the changed file is laid over it (go test -overlay).
//
// It fails when a mutation survives, when what it replaces is not there any more, or when the result
// does not compile; and before all that, when a test fails with nothing taken out, which would prove
// nothing. Random histories begin with one seed, so two runs meet the same ones. Start it with make mutate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// mutation is one check that is taken out: old, which stands once in file, becomes new. At least one of the tests
// must fail then.
type mutation struct {
	name     string
	file     string
	old, new string
	also     [2]string // the same for another check that would notice; empty for most
	pkg      string    // of the tests; empty is that of the file
	tests    string    // a regular expression of whole names
}

// testsOf is the package of the tests.
func (m mutation) testsOf() string {
	if m.pkg != "" {
		return m.pkg
	}
	return filepath.Dir(m.file)
}

// options of a run.
type options struct {
	only   string
	jobs   int
	checks int
	seed   uint64
	dry    bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "run", "", "a regular expression: only mutations whose names match")
	flag.IntVar(&o.jobs, "jobs", 2, "how many run at once")
	flag.IntVar(&o.checks, "checks", 500, "how many random histories a property test makes")
	flag.Uint64Var(&o.seed, "seed", 1, "what they begin with")
	flag.BoolVar(&o.dry, "dry", false, "run no test: see that every mutation fits and compiles")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	wanted, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	var chosen []mutation
	for _, m := range mutations {
		if wanted.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return errors.New("no mutation has such a name")
	}
	if !o.dry {
		if err := unchanged(ctx, o, chosen); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	verdicts := make([]verdict, len(chosen))
	queue := make(chan int)
	var wg sync.WaitGroup
	var done atomic.Int64
	for range o.jobs {
		wg.Go(func() {
			for i := range queue {
				v := try(ctx, o, chosen[i], filepath.Join(dir, fmt.Sprint(i)))
				if ctx.Err() != nil {
					continue // ended in the middle of it
				}
				verdicts[i] = v
				fmt.Printf("%3d/%d %-9s %s%s\n", done.Add(1), len(chosen), verdicts[i].word, chosen[i].name, verdicts[i].detail)
			}
		})
	}
	for i := range chosen {
		queue <- i
	}
	close(queue)
	wg.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %d of %d", done.Load(), len(chosen))
	}
	return summary(chosen, verdicts, o)
}

// verdict is what became of a mutation.
type verdict struct{ word, detail string }

const (
	killed = "killed"
	built  = "built" // and not tried
)

func summary(chosen []mutation, verdicts []verdict, o options) error {
	n, good := 0, killed
	if o.dry {
		good = built
	}
	var bad []string
	for i, v := range verdicts {
		if v.word == good {
			n++
			continue
		}
		bad = append(bad, chosen[i].name+": "+v.word)
	}
	fmt.Printf("%d of %d mutations are %s\n", n, len(chosen), good)
	if len(bad) > 0 {
		return fmt.Errorf("not %s:\n  %s", good, strings.Join(bad, "\n  "))
	}
	return nil
}

// unchanged runs all the tests with nothing taken out, once, and sees that each of them is there.
func unchanged(ctx context.Context, o options, chosen []mutation) error {
	byPackage := map[string][]string{}
	for _, m := range chosen {
		byPackage[m.testsOf()] = append(byPackage[m.testsOf()], strings.Split(m.tests, "|")...)
	}
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		names := byPackage[pkg]
		slices.Sort(names)
		names = slices.Compact(names)
		listed, err := exec.CommandContext(ctx, "go", "test", "-list", "^Test", "./"+pkg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("listing the tests of %s: %w\n%s", pkg, err, listed)
		}
		there := strings.Fields(string(listed))
		for _, name := range names {
			if !slices.Contains(there, name) {
				return fmt.Errorf("%s has no test %s", pkg, name)
			}
		}
		if out, err := test(ctx, o, pkg, names, ""); err != nil {
			return fmt.Errorf("the tests of %s fail with nothing taken out:\n%s", pkg, out)
		}
		fmt.Printf("unchanged %s passes %d tests\n", pkg, len(names))
	}
	return nil
}

// test runs tests by their names, with what is laid over the tree. A wait that will not end ends soon.
func test(ctx context.Context, o options, pkg string, names []string, overlay string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay="+overlay, "-vet=off", "-count=1", "-failfast", "-timeout", "3m", "-ldflags=-s -w",
		"-run", "^("+strings.Join(names, "|")+")$", "./"+pkg)
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=100ms", fmt.Sprintf("RAPID_CHECKS=%d", o.checks),
		fmt.Sprintf("RAPID_SEED=%d", o.seed), "AGENT_TEST_PATIENCE=20s")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// try runs the tests of a mutation, in a directory of its own for what is laid over the tree.
func try(ctx context.Context, o options, m mutation, dir string) verdict {
	overlay, err := m.overlay(dir)
	if err != nil {
		return verdict{"misfit", ": " + err.Error()}
	}
	if o.dry {
		if out, err := exec.CommandContext(ctx, "go", "build", "-overlay="+overlay, "./"+filepath.Dir(m.file)).CombinedOutput(); err != nil {
			return verdict{"broken", ":\n" + string(out)}
		}
		return verdict{built, ""}
	}
	text, err := test(ctx, o, m.testsOf(), strings.Split(m.tests, "|"), overlay)
	by := failed.FindAllStringSubmatch(text, -1)
	switch {
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		return verdict{"broken", ":\n" + text}
	case err == nil:
		return verdict{"survived", ": " + m.tests + " pass"}
	case strings.Contains(text, "panic: test timed out"):
		return verdict{"hung", ":\n" + text} // a busy machine is no proof
	case len(by) > 0:
		return verdict{killed, " by " + by[len(by)-1][1]}
	}
	return verdict{"broken", ":\n" + text}
}

// overlay writes the changed file, and the list that lays it over the real one.
func (m mutation) overlay(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	text := string(source)
	for _, r := range [][2]string{{m.old, m.new}, m.also} {
		if n := strings.Count(text, r[0]); n != 1 && r[0] != "" {
			return "", fmt.Errorf("what is to be replaced stands %d times in %s, want once: %q", n, m.file, r[0])
		}
		if r[0] != "" {
			text = strings.Replace(text, r[0], r[1], 1)
		}
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o600)
}
