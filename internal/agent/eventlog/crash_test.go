// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"bufio"
	"fmt"
	"io"
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
		fmt.Println("open:", err)
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
					fmt.Println("append:", err)
					os.Exit(1)
				}
				if i%3 > 0 {
					out.Lock()
					fmt.Println(e.Seq, e.Prev)
					out.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// Killed at any moment, again and again, the log keeps every event that was
// acknowledged, unchanged, and stays one chain.
func TestKill9LosesNoAcknowledgedEvent(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[uint64]string{} // seq to prev
	for round := range 12 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "EVENTLOG_TEST_CRASH_DIR="+dir)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(stdout)
		for n := 0; ; n++ {
			if n == 20+round*7 { // mid-flight: the other goroutines are writing
				go func() { time.Sleep(time.Duration(round) * 500 * time.Microsecond); cmd.Process.Kill() }()
			}
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				break // what stands on half a line was not heard
			}
			if err != nil {
				t.Fatal(err)
			}
			seq, prev, _ := strings.Cut(strings.TrimSpace(line), " ")
			number, err := strconv.ParseUint(seq, 10, 64)
			if err != nil {
				t.Fatalf("round %d: the writer says %q", round, line)
			}
			acknowledged[number] = prev
		}
		cmd.Wait()

		kept := map[uint64]string{}
		for e, err := range Read(dir) {
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			kept[e.Seq] = e.Prev
		}
		for seq, prev := range acknowledged {
			if kept[seq] != prev {
				t.Fatalf("round %d: event %d was acknowledged with prev %s and is now %q", round, seq, prev, kept[seq])
			}
		}
	}
	report, err := Verify(dir)
	if err != nil || len(report.Segments) != 12 || len(acknowledged) < 200 {
		t.Errorf("Verify() = %+v, %v with %d acknowledged; want 12 segments and hundreds", report, err, len(acknowledged))
	}
}
