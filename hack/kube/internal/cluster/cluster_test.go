// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
	"github.com/agentsession-dev/operator/hack/kube/internal/parts"
)

// A node counts as ready when it says so itself, since the start, and pods are let on it.
func TestNodeReady(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		want string // in the error; "" for ready
		node string
	}{
		"ready since the start": {"", `{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-02T03:04:05Z"}]}}`},
		"ready before it":       {"not reported", `{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-02T03:04:04Z"}]}}`},
		"not ready":             {"KubeletNotReady: no network", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"no network"}]}}`},
		"no condition":          {"no condition", `{}`},
		"tainted":               {"taint", `{"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]},"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-02T03:04:05Z"}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var n node
			if err := json.Unmarshal([]byte(tc.node), &n); err != nil {
				t.Fatal(err)
			}
			err := n.ready(began)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ready() = %v, want %q", err, tc.want)
			}
		})
	}
}

// Every manifest has a path in the API, so that none is found unknown at a start.
func TestManifestPaths(t *testing.T) {
	manifests, err := parts.Manifests(config.Default())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifests {
		path, err := pathOf(m)
		if err != nil {
			t.Errorf("%v in:\n%s", err, m)
		}
		got = append(got, path)
	}
	for _, want := range []string{
		"/api/v1/namespaces/kube-system/services/kube-dns",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns",
		"/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns",
	} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("paths %q lack %s", got, want)
		}
	}
}

// A state directory is taken when it is empty, again with the same settings,
// and with other ports. It is not taken from
// somebody else, nor changed under its objects.
func TestClaim(t *testing.T) {
	stored := func(k *Cluster) error { return os.MkdirAll(k.Path("etcd", "member"), 0o700) }
	for name, tc := range map[string]struct {
		ok      bool
		before  func(k *Cluster) error
		changed func(c *config.Config)
	}{
		"empty":           {true, nil, nil},
		"the same again":  {true, func(k *Cluster) error { return errors.Join(k.claim(), stored(k)) }, nil},
		"other ports":     {true, func(k *Cluster) error { return errors.Join(k.claim(), stored(k)) }, func(c *config.Config) { c.Ports = map[config.Port]int{config.DNS: 1} }},
		"another address": {false, func(k *Cluster) error { return errors.Join(k.claim(), stored(k)) }, func(c *config.Config) { c.NodeIP = netip.MustParseAddr("172.30.0.1") }},
		"somebody else's": {false, func(k *Cluster) error { return os.WriteFile(filepath.Join(k.StateDir, "thesis"), nil, 0o600) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := &Cluster{Config: config.Default(), Out: io.Discard}
			k.StateDir = t.TempDir()
			if tc.before != nil {
				if err := tc.before(k); err != nil {
					t.Fatal(err)
				}
			}
			if tc.changed != nil {
				tc.changed(&k.Config)
			}
			if err := k.claim(); (err == nil) != tc.ok {
				t.Errorf("claim() = %v, want success %t", err, tc.ok)
			}
			recorded, err := config.Load(k.StateDir)
			if tc.ok && (err != nil || recorded.Ports[config.DNS] != k.Ports[config.DNS]) {
				t.Errorf("the record after claim: %+v, %v", recorded, err)
			}
		})
	}
}
