// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
)

const (
	maxLinkName   = 15  // IFNAMSIZ less its zero, linux/if.h
	maxSocketPath = 107 // sun_path less its zero, unix(7)
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Validate reports everything that is wrong with c, each with the flag that
// changes it.
func (c Config) Validate() error {
	return errors.Join(c.validateNames(), c.validateAddresses(), c.validatePorts())
}

func (c Config) validateNames() error {
	var errs []error
	if !label.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("--name %q: must be lower-case letters, digits and hyphens, at most 63", c.Name))
	}
	if len(c.Bridge) == 0 || len(c.Bridge) > maxLinkName {
		errs = append(errs, fmt.Errorf("--bridge %q: must be 1 to %d characters", c.Bridge, maxLinkName))
	}
	switch {
	case !filepath.IsAbs(c.StateDir) || filepath.Clean(c.StateDir) != c.StateDir || c.StateDir == "/":
		errs = append(errs, fmt.Errorf("--state-dir %q: must be an absolute, clean path", c.StateDir))
	case len(c.Socket())+len(".ttrpc") > maxSocketPath:
		errs = append(errs, fmt.Errorf("--state-dir %q: too long by %d characters for the sockets in it",
			c.StateDir, len(c.Socket())+len(".ttrpc")-maxSocketPath))
	}
	return errors.Join(errs...)
}

func (c Config) validateAddresses() error {
	var errs []error
	if !c.NodeIP.Is4() || c.NodeIP.IsLoopback() || c.NodeIP.IsLinkLocalUnicast() || c.NodeIP.IsUnspecified() || c.NodeIP.IsMulticast() {
		errs = append(errs, fmt.Errorf("--node-ip %s: must be an IPv4 address that is neither loopback nor link-local", c.NodeIP))
	}
	for _, p := range []struct {
		flag string
		cidr netip.Prefix
		max  int
	}{{"--pod-cidr", c.PodCIDR, 28}, {"--service-cidr", c.ServiceCIDR, 28}} {
		switch {
		case !p.cidr.Addr().Is4() || p.cidr != p.cidr.Masked():
			errs = append(errs, fmt.Errorf("%s %s: must be an IPv4 range that begins at its first address", p.flag, p.cidr))
		case p.cidr.Bits() > p.max || p.cidr.Bits() < 12:
			errs = append(errs, fmt.Errorf("%s %s: must be between /12 and /%d", p.flag, p.cidr, p.max))
		case p.cidr.Contains(c.NodeIP):
			errs = append(errs, fmt.Errorf("%s %s: must not contain --node-ip %s", p.flag, p.cidr, c.NodeIP))
		}
	}
	if c.PodCIDR.Overlaps(c.ServiceCIDR) {
		errs = append(errs, fmt.Errorf("--pod-cidr %s and --service-cidr %s: must not overlap", c.PodCIDR, c.ServiceCIDR))
	}
	return errors.Join(errs...)
}

func (c Config) validatePorts() error {
	var errs []error
	taken := make(map[int]Port)
	for _, l := range Listeners {
		n := c.Ports[l.Port]
		if n < 1 || n > 65535 {
			errs = append(errs, fmt.Errorf("--%s %d: must be between 1 and 65535", l.Port, n))
			continue
		}
		if other, ok := taken[n]; ok {
			errs = append(errs, fmt.Errorf("--%s %d: is also --%s", l.Port, n, other))
		}
		taken[n] = l.Port
	}
	return errors.Join(errs...)
}
