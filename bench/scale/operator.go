// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// build compiles the operator, gives it a user and starts it.
func (w *world) build(ctx context.Context) error {
	b, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(w.dir, "manager"), "./cmd/manager").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the operator (run from the repository's root): %w\n%s", err, b)
	}
	user, err := w.env.AddUser(envtest.User{Name: operatorUser, Groups: []string{"system:masters"}}, w.admin)
	if err != nil {
		return err
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, "kubeconfig"), kubeconfig, 0o600); err != nil {
		return err
	}
	return w.startOperator(ctx)
}

func (w *world) startOperator(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.metrics = l.Addr().String()
	_ = l.Close()
	w.manager = exec.Command(filepath.Join(w.dir, "manager"), "--namespace="+operatorNamespace, "--agent-image=agent:1", "--leader-elect",
		"--metrics-bind-address="+w.metrics, "--health-probe-bind-address=0")
	// As in the chart's pod, where it knows 90% of the limit of 512Mi as its own.
	w.manager.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(w.dir, "kubeconfig"), "GOMEMLIMIT=460MiB")
	if w.o.verbose {
		w.manager.Stderr = os.Stderr
	}
	if err := w.manager.Start(); err != nil {
		return err
	}
	return eventually(ctx, "the operator answers", func() bool { return w.scrape() != nil })
}

func (w *world) stopOperator() {
	if w.manager == nil || w.manager.Process == nil {
		return
	}
	_ = w.manager.Process.Signal(syscall.SIGTERM)
	_ = w.manager.Wait()
	w.cpu += (w.manager.ProcessState.UserTime() + w.manager.ProcessState.SystemTime()).Seconds()
	w.manager = nil
}

// reading is what the operator has cost so far.
type reading struct {
	rss                    float64 // MiB, now
	cpu, reconciles        float64
	writes, events, leases int
}

func (r reading) since(before reading) reading {
	if r.reconciles < before.reconciles { // another process
		before.reconciles = 0
	}
	return reading{r.rss, r.cpu - before.cpu, r.reconciles - before.reconciles, r.writes - before.writes, r.events - before.events, r.leases - before.leases}
}

func (w *world) measure() reading {
	r := reading{cpu: w.cpu}
	pid := strconv.Itoa(w.manager.Process.Pid)
	if b, err := os.ReadFile("/proc/" + pid + "/status"); err == nil {
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				r.rss = kib / 1024
			}
		}
	}
	metrics := w.scrape()
	r.cpu += metrics["process_cpu_seconds_total"]
	for name, v := range metrics {
		if strings.HasPrefix(name, "controller_runtime_reconcile_total{") {
			r.reconciles += v
		}
	}
	r.writes, r.events, r.leases = w.audited()
	return r
}

// scrape reads the operator's metrics; nil when it does not answer.
func (w *world) scrape() map[string]float64 {
	c := http.Client{Timeout: 5 * time.Second}
	resp, err := c.Get("http://" + w.metrics + "/metrics")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	all := map[string]float64{}
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), "} ") // what has labels keeps them, but for the brace
		if value == "" {
			name, value, _ = strings.Cut(s.Text(), " ")
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = v
		}
	}
	return all
}

// audited counts what the operator wrote according to the apiserver.
func (w *world) audited() (writes, events, leases int) {
	f, err := os.Open(w.auditLog())
	if err != nil {
		return
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e struct {
			ObjectRef struct {
				Resource string `json:"resource"`
			} `json:"objectRef"`
		}
		if json.Unmarshal(s.Bytes(), &e) != nil {
			continue
		}
		switch e.ObjectRef.Resource {
		case "events":
			events++
		case "leases":
			leases++
		default:
			writes++
		}
	}
	return
}
