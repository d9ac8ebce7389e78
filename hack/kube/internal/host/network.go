// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
)

const forwarding = "/proc/sys/net/ipv4/ip_forward"

// alias marks the bridge as that of one cluster.
func alias(c config.Config) string { return "agentsession-dev " + c.StateDir }

// EnsureNetwork makes the link with the node's address and the rules that let
// pods out. Pods are routed one by one, so that every packet of theirs, also
// from pod to pod, passes the rules of kube-proxy.
func EnsureNetwork(c config.Config) error {
	if err := ensureBridge(c); err != nil {
		return err
	}
	if err := os.WriteFile(forwarding, []byte("1"), 0o644); err != nil {
		return fmt.Errorf("switching on forwarding between interfaces: %w", err)
	}
	return addRules(c)
}

func ensureBridge(c config.Config) error {
	if err := addressFree(c); err != nil {
		return err
	}
	link, err := netlink.LinkByName(c.Bridge)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		link, err = addBridge(c)
	}
	if err != nil {
		return fmt.Errorf("making the link %s: %w", c.Bridge, err)
	}
	if link.Attrs().Alias != alias(c) {
		return fmt.Errorf("a link %s exists and is not this cluster's: choose another with --bridge", c.Bridge)
	}
	address := &netlink.Addr{IPNet: hostNet(c)}
	if err := netlink.AddrReplace(link, address); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", c.Bridge, c.NodeIP, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up %s: %w", c.Bridge, err)
	}
	return nil
}

func addBridge(c config.Config) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = c.Bridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	link, err := netlink.LinkByName(c.Bridge)
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetAlias(link, alias(c)); err != nil {
		return nil, errors.Join(err, netlink.LinkDel(link))
	}
	return netlink.LinkByName(c.Bridge)
}

// addressFree refuses an address that another link has: traffic to it would
// reach that one.
func addressFree(c config.Config) error {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range addresses {
		if !a.IP.Equal(net.IP(c.NodeIP.AsSlice())) {
			continue
		}
		link, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil || link.Attrs().Name == c.Bridge {
			continue
		}
		return fmt.Errorf("the link %s already has the address %s: choose another with --node-ip", link.Attrs().Name, c.NodeIP)
	}
	return nil
}

func hostNet(c config.Config) *net.IPNet {
	return &net.IPNet{IP: c.NodeIP.AsSlice(), Mask: net.CIDRMask(32, 32)}
}

func removeBridge(c config.Config) error {
	link, err := netlink.LinkByName(c.Bridge)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return nil
	}
	if err != nil {
		return err
	}
	if link.Attrs().Alias != alias(c) {
		return nil
	}
	return netlink.LinkDel(link)
}
