// SPDX-License-Identifier: Apache-2.0

// Command mutate takes single checks out of the agent, one at a time, and runs the tests that should
// notice. A check whose removal no test notices is one that the tests do not prove. Nothing in the
// tree is changed: the changed file is laid over it (go test -overlay).
//
// It fails when a mutation survives, when what it replaces is not there any more, or when the result
// does not compile. Start it with make mutate.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// mutation is one check that is taken out: old, which stands once in file, becomes new. At least one of the tests
// must fail then.
type mutation struct {
	name     string
	file     string
	old, new string
	pkg      string // of the tests; empty is that of the file
	tests    string // a regular expression of whole names
}

func main() {
	only := flag.String("run", "", "a regular expression: only mutations whose names match")
	jobs := flag.Int("jobs", 2, "how many run at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, jobs int) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var chosen []mutation
	for _, m := range mutations {
		if wanted.MatchString(m.name) {
			chosen = append(chosen, m)
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
	for range jobs {
		wg.Go(func() {
			for i := range queue {
				verdicts[i] = try(ctx, chosen[i], filepath.Join(dir, fmt.Sprint(i)))
				fmt.Printf("%-9s %s%s\n", verdicts[i].word, chosen[i].name, verdicts[i].detail)
			}
		})
	}
	for i := range chosen {
		queue <- i
	}
	close(queue)
	wg.Wait()
	return summary(chosen, verdicts)
}

// verdict is what became of a mutation.
type verdict struct{ word, detail string }

const killed = "killed"

func summary(chosen []mutation, verdicts []verdict) error {
	n := 0
	var bad []string
	for i, v := range verdicts {
		if v.word == killed {
			n++
			continue
		}
		bad = append(bad, chosen[i].name+": "+v.word)
	}
	fmt.Printf("%d of %d mutations are killed\n", n, len(chosen))
	if len(chosen) == 0 {
		return errors.New("no mutation has such a name")
	}
	if len(bad) > 0 {
		return fmt.Errorf("not killed:\n  %s", strings.Join(bad, "\n  "))
	}
	return nil
}

// try runs the tests of a mutation, in a directory of its own for what is laid over the tree.
func try(ctx context.Context, m mutation, dir string) verdict {
	overlay, err := m.overlay(dir)
	if err != nil {
		return verdict{"misfit", ": " + err.Error()}
	}
	pkg := m.pkg
	if pkg == "" {
		pkg = filepath.Dir(m.file)
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-failfast", "-timeout", "10m", "-ldflags=-s -w",
		"-run", "^("+m.tests+")$", "./"+pkg)
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=1s")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	text := string(out)
	switch {
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		return verdict{"broken", ":\n" + text}
	case strings.Contains(text, "no tests to run"):
		return verdict{"untested", ": no test is called " + m.tests}
	case err == nil:
		return verdict{"survived", ": " + m.tests + " pass"}
	case strings.Contains(text, "panic: test timed out"):
		return verdict{"hung", ":\n" + text} // a busy machine is no proof
	case strings.Contains(text, "FAIL"):
		return verdict{killed, ""}
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
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("what is to be replaced stands %d times in %s, want once: %q", n, m.file, m.old)
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600); err != nil {
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
