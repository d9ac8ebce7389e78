// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary be the writer that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("EVENTLOG_TEST_CRASH_DIR"); dir != "" {
		crashWriter(dir)
		return
	}
	os.Exit(m.Run())
}

// crashWriter appends from several goroutines and prints each seq once it is
// committed, until it is killed.
func crashWriter(dir string) {
	l, _, err := Open(dir, Options{PodUID: "crash"})
	if err != nil {
		fmt.Fprintln(os.Stdout, "open:", err)
		os.Exit(1)
	}
	var out sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				e, err := l.Append(TypeToolResult, ToolResult{Text: strings.Repeat("x", i%5000)})
				if err == nil && i%3 > 0 {
					err = l.Commit(e.Seq)
				}
				if err != nil {
					fmt.Fprintln(os.Stdout, "append:", err)
					os.Exit(1)
				}
				if i%3 > 0 {
					out.Lock()
					fmt.Fprintln(os.Stdout, e.Seq, e.Prev)
					out.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// kills is how often the writer is killed: a few times, or as the environment says
// (EVENTLOG_TEST_KILLS=1000 takes some minutes).
func kills(t *testing.T) int {
	t.Helper()
	value := os.Getenv("EVENTLOG_TEST_KILLS")
	if value == "" {
		return 12
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		t.Fatalf("EVENTLOG_TEST_KILLS=%q is not a number of kills", value)
	}
	return n
}

// Killed at random moments under load, again and again, the log keeps every event
// that was acknowledged, unchanged, and stays one chain.
func TestKill9LosesNoAcknowledgedEvent(t *testing.T) {
	total, acknowledged, cuts := kills(t), 0, 0
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d kills, seed %d", total, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for done := 0; done < total; {
		c := &crashes{dir: t.TempDir(), acknowledged: map[uint64]string{}}
		rounds := min(20, total-done) // a log's reading grows with its length: take a new one now and then
		for range rounds {
			c.kill(t, random.IntN(60), time.Duration(random.IntN(4000))*time.Microsecond)
			done++
		}
		report, err := Verify(c.dir)
		if err != nil || len(report.Segments) > rounds {
			t.Fatalf("Verify() = %+v, %v; want at most %d segments", report, err, rounds)
		}
		for _, s := range report.Segments {
			if s.Ignored > 0 {
				cuts++
			}
		}
		acknowledged += len(c.acknowledged)
	}
	t.Logf("%d events acknowledged, %d torn tails", acknowledged, cuts)
	if acknowledged < 10*total {
		t.Errorf("%d events acknowledged in %d lives: there was no load", acknowledged, total)
	}
}

// crashes is one log, and what its writers acknowledged before they were killed.
type crashes struct {
	dir          string
	acknowledged map[uint64]string // seq to prev
}

// kill starts a writer, lets it acknowledge some events, kills it a moment later,
// in the middle of whatever it does, and checks the log.
func (c *crashes) kill(t *testing.T, events int, moment time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "EVENTLOG_TEST_CRASH_DIR="+c.dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	for n := 0; ; n++ {
		if n == events {
			time.AfterFunc(moment, func() { cmd.Process.Kill() })
		}
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // what stands on half a line was not heard
		}
		if err != nil {
			t.Fatal(err)
		}
		seq, prev, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.ParseUint(seq, 10, 64)
		if err != nil {
			t.Fatalf("the writer says %q", line)
		}
		c.acknowledged[number] = prev
	}
	cmd.Wait()

	kept := map[uint64]string{}
	for e, err := range Read(c.dir) {
		if err != nil {
			t.Fatal(err)
		}
		kept[e.Seq] = e.Prev
	}
	for seq, prev := range c.acknowledged {
		if kept[seq] != prev {
			t.Fatalf("event %d was acknowledged with prev %s and is now %q", seq, prev, kept[seq])
		}
	}
}
