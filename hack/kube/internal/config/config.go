// SPDX-License-Identifier: Apache-2.0

// Package config says what one development cluster is: its name, addresses,
// ports and the directory that holds its state. It checks values against one
// another and knows nothing of the machine.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// Config describes a cluster. It is recorded when the cluster comes up, so
// that every later command works with what is really there.
type Config struct {
	Name        string       `json:"name"` // of node, kubeconfig context and control group
	StateDir    string       `json:"stateDir"`
	Bridge      string       `json:"bridge"` // link that carries NodeIP
	NodeIP      netip.Addr   `json:"nodeIP"`
	PodCIDR     netip.Prefix `json:"podCIDR"`
	ServiceCIDR netip.Prefix `json:"serviceCIDR"`
	Ports       map[Port]int `json:"ports"`
}

// Default is a cluster that hardly anything else on a machine collides with.
func Default() Config {
	c := Config{
		Name:        "agentsession-dev",
		StateDir:    "/var/lib/agentsession-dev",
		Bridge:      "agentsession0",
		NodeIP:      netip.MustParseAddr("172.31.255.1"),
		PodCIDR:     netip.MustParsePrefix("10.244.0.0/24"),
		ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"),
		Ports:       make(map[Port]int),
	}
	for _, l := range Listeners {
		c.Ports[l.Port] = l.Default
	}
	return c
}

// Path is a path inside the state directory.
func (c Config) Path(elem ...string) string {
	return filepath.Join(append([]string{c.StateDir}, elem...)...)
}

// Kubeconfig is where the administrator's kubeconfig is written.
func (c Config) Kubeconfig() string { return c.Path("kubeconfig") }

// Socket is containerd's.
func (c Config) Socket() string { return c.Path("containerd.sock") }

// APIServer is the address of the apiserver for everything on this machine.
func (c Config) APIServer() string { return "https://" + c.OnNode(APIServer) }

// OnNode is a port at the node's address.
func (c Config) OnNode(p Port) string {
	return netip.AddrPortFrom(c.NodeIP, uint16(c.Ports[p])).String()
}

// OnLoopback is a port at 127.0.0.1.
func (c Config) OnLoopback(p Port) string { return "127.0.0.1:" + c.PortString(p) }

// PortString is a port's number in decimal.
func (c Config) PortString(p Port) string { return strconv.Itoa(c.Ports[p]) }

// KubernetesIP is the address of the service "kubernetes", by Kubernetes'
// convention the first of the range.
func (c Config) KubernetesIP() netip.Addr { return nth(c.ServiceCIDR, 1) }

// DNSIP is the address of the DNS service, by convention the tenth.
func (c Config) DNSIP() netip.Addr { return nth(c.ServiceCIDR, 10) }

func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

const recordName = "cluster.json"

// ErrNoCluster says that a state directory holds no cluster.
var ErrNoCluster = errors.New("no cluster there")

// Save records the configuration in the state directory. The record also
// marks the directory as ours: nothing else may be removed.
func (c Config) Save() error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	aside := c.Path(recordName + ".new")
	if err := os.WriteFile(aside, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("recording the cluster: %w", err)
	}
	return os.Rename(aside, c.Path(recordName))
}

// Load reads what Save recorded; ErrNoCluster when there is no record.
func Load(stateDir string) (Config, error) {
	var c Config
	data, err := os.ReadFile(filepath.Join(stateDir, recordName))
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("%s: %w", stateDir, ErrNoCluster)
	}
	if err != nil {
		return c, fmt.Errorf("reading the cluster's record: %w", err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("reading the cluster's record %s: %w: remove that directory if nothing in it is needed",
			filepath.Join(stateDir, recordName), err)
	}
	if c.StateDir != stateDir {
		return c, fmt.Errorf("the cluster in %s was made in %s: a cluster cannot be moved", stateDir, c.StateDir)
	}
	return c, nil
}
