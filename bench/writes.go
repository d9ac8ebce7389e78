// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/agentsession-dev/operator/test/cluster"
)

// settle is how long late writes have to show in the audit log.
const settle = 3 * time.Second

// writes counts what the operator writes, from the apiserver's audit log: from the creation
// of a session until it is Ready, and while nothing changes. Events and its lease are left out.
func (b *bench) writes(ctx context.Context) error {
	if b.auditLog == "" {
		fmt.Fprintln(os.Stderr, "  left out: there is no audit log (--audit-log)")
		return nil
	}
	created, err := b.during(func() error {
		_, err := b.ready(ctx, "writes")
		time.Sleep(settle)
		return err
	})
	if err != nil {
		return err
	}
	idle, err := b.during(func() error {
		select {
		case <-time.After(b.idle):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return err
	}
	b.add("writes_create_ready", float64(created), "writes", "a sandbox without policy, link or log (about)", 4)
	b.rows = append(b.rows, row{
		ID: "writes_idle_hour", Value: float64(idle) * float64(time.Hour) / float64(b.idle), Unit: "writes",
		ComparedTo: fmt.Sprintf("none, seen for %s", b.idle),
	})
	return nil
}

// during counts the operator's writes while do runs.
func (b *bench) during(do func() error) (int, error) {
	f, err := os.Open(b.auditLog)
	if err != nil {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	n := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e struct {
			User      struct{ Username string }
			ObjectRef struct{ Resource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return 0, fmt.Errorf("reading the audit log: %w", err)
		}
		if strings.HasPrefix(e.User.Username, "system:serviceaccount:"+cluster.System+":") &&
			e.ObjectRef.Resource != "events" && e.ObjectRef.Resource != "leases" {
			n++
		}
	}
	return n, lines.Err()
}
