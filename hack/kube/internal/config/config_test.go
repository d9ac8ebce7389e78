// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var sameAddresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// Each mistake is reported with the flag that mends it; the defaults have none.
func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		want   string // in the error; "" for none
		change func(*Config)
	}{
		"the defaults are fine":           {"", func(*Config) {}},
		"a name with capitals":            {"--name", func(c *Config) { c.Name = "Dev" }},
		"a link name of 16 characters":    {"--bridge", func(c *Config) { c.Bridge = strings.Repeat("b", 16) }},
		"a relative state directory":      {"--state-dir", func(c *Config) { c.StateDir = "state" }},
		"a path too long for a socket":    {"too long by", func(c *Config) { c.StateDir = "/" + strings.Repeat("d", 100) }},
		"the root as state directory":     {"--state-dir", func(c *Config) { c.StateDir = "/" }},
		"a loopback node":                 {"--node-ip", func(c *Config) { c.NodeIP = netip.MustParseAddr("127.0.0.1") }},
		"an IPv6 node":                    {"--node-ip", func(c *Config) { c.NodeIP = netip.MustParseAddr("fd00::1") }},
		"a range that begins in between":  {"--pod-cidr", func(c *Config) { c.PodCIDR = netip.MustParsePrefix("10.1.0.5/24") }},
		"a range of four addresses":       {"--service-cidr", func(c *Config) { c.ServiceCIDR = netip.MustParsePrefix("10.1.0.0/30") }},
		"the node inside the pods' range": {"--pod-cidr", func(c *Config) { c.PodCIDR = netip.MustParsePrefix("172.31.0.0/16") }},
		"overlapping ranges":              {"overlap", func(c *Config) { c.PodCIDR = netip.MustParsePrefix("10.96.1.0/24") }},
		"port 0":                          {"--etcd-port", func(c *Config) { c.Ports[EtcdClient] = 0 }},
		"one port twice":                  {"is also --apiserver-port", func(c *Config) { c.Ports[DNS] = c.Ports[APIServer] }},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			tc.change(&c)
			err := c.Validate()
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("Validate() = %v, want none", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("Validate() = %v, want it to name %q", err, tc.want)
			}
		})
	}
}

// The addresses of the two services that everything relies on are where
// Kubernetes puts them.
func TestServiceAddresses(t *testing.T) {
	c := Default()
	if got := c.KubernetesIP().String(); got != "10.96.0.1" {
		t.Errorf("KubernetesIP() = %s", got)
	}
	if got := c.DNSIP().String(); got != "10.96.0.10" {
		t.Errorf("DNSIP() = %s", got)
	}
}

// What was recorded is read again, and a directory without a record is told from
// one that cannot be read or was moved.
func TestRecord(t *testing.T) {
	c := Default()
	c.StateDir = t.TempDir()
	if _, err := Load(c.StateDir); !errors.Is(err, ErrNoCluster) {
		t.Errorf("Load() of an empty directory = %v, want ErrNoCluster", err)
	}
	if err := c.Save(); err != nil {
		t.Fatal(err)
	}
	got, err := Load(c.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, got, sameAddresses); diff != "" {
		t.Errorf("Load() (-saved +loaded):\n%s", diff)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(c.StateDir, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(moved); err == nil || errors.Is(err, ErrNoCluster) {
		t.Errorf("Load() of a moved cluster = %v, want a refusal", err)
	}
}

// The command line wins over the environment, which wins over the defaults.
func TestFlags(t *testing.T) {
	c := Default()
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.Bind(fs)
	env := map[string]string{"AGENTSESSION_KUBE_NODE_IP": "172.30.0.1", "AGENTSESSION_KUBE_APISERVER_PORT": "7443"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	if err := FromEnv(fs, lookup); err != nil {
		t.Fatal(err)
	}
	if err := fs.Parse([]string{"--apiserver-port=8443"}); err != nil {
		t.Fatal(err)
	}
	if got := c.APIServer(); got != "https://172.30.0.1:8443" {
		t.Errorf("APIServer() = %s", got)
	}
	if got := c.Ports[EtcdClient]; got != 2379 {
		t.Errorf("the etcd port, which nobody set, is %d", got)
	}
	env["AGENTSESSION_KUBE_ETCD_PORT"] = "many"
	if err := FromEnv(fs, lookup); err == nil || !strings.Contains(err.Error(), "AGENTSESSION_KUBE_ETCD_PORT") {
		t.Errorf("FromEnv() = %v, want it to name the variable", err)
	}
}
