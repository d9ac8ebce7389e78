// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
)

const envPrefix = "AGENTSESSION_KUBE_"

// Bind adds a flag for each field of c, with its present value as default.
func (c *Config) Bind(fs *flag.FlagSet) {
	fs.StringVar(&c.Name, "name", c.Name, "name of node, kubeconfig context and control group")
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "directory of everything the cluster keeps")
	fs.StringVar(&c.Bridge, "bridge", c.Bridge, "link made for the node's address")
	fs.TextVar(&c.NodeIP, "node-ip", c.NodeIP, "address of node and apiserver")
	fs.TextVar(&c.PodCIDR, "pod-cidr", c.PodCIDR, "addresses of pods")
	fs.TextVar(&c.ServiceCIDR, "service-cidr", c.ServiceCIDR, "addresses of services")
	for _, l := range Listeners {
		fs.Func(string(l.Port), fmt.Sprintf("port of %s (default %d)", l.Part, c.Ports[l.Port]), func(s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return errors.New("not a number")
			}
			c.Ports[l.Port] = n
			return nil
		})
	}
}

// EnvName is the environment variable that sets a flag.
func EnvName(flagName string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// FromEnv sets each flag that has a variable in the environment. Call it before
// parsing the command line, which has the last word.
func FromEnv(fs *flag.FlagSet, lookup func(string) (string, bool)) error {
	var err error
	fs.VisitAll(func(f *flag.Flag) {
		v, ok := lookup(EnvName(f.Name))
		if !ok || err != nil {
			return
		}
		if e := fs.Set(f.Name, v); e != nil {
			err = fmt.Errorf("%s=%q: %w", EnvName(f.Name), v, e)
		}
	})
	return err
}
