// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Mode is how far the tools may reach. Modes are ordered: a greater one is wider.
type Mode uint8

const (
	ReadOnly         Mode = iota // the zero value fails closed
	WorkspaceWrite               // the workspace and private temporary areas are writable
	DangerFullAccess             // no file rules beyond the pod's own
)

// Network is what tool processes may reach. A greater one is wider.
type Network uint8

const (
	NetworkNone Network = iota
	NetworkOpen
)

// Approval says whether a person may be asked to let one call run wider. A greater one is wider.
type Approval uint8

const (
	ApprovalNever Approval = iota
	ApprovalAsk
)

var (
	modeNames     = []string{"read-only", "workspace-write", "danger-full-access"}
	networkNames  = []string{"none", "open"}
	approvalNames = []string{"never", "ask"}
)

// Modes returns every mode, narrowest first.
func Modes() []Mode { return []Mode{ReadOnly, WorkspaceWrite, DangerFullAccess} }

func (m Mode) String() string     { return nameOf(modeNames, uint8(m)) }
func (n Network) String() string  { return nameOf(networkNames, uint8(n)) }
func (a Approval) String() string { return nameOf(approvalNames, uint8(a)) }

// ParseMode reads a mode by its name. The error lists the names that exist.
func ParseMode(s string) (Mode, error) { return parse[Mode]("sandbox mode", modeNames, s) }

// ParseNetwork reads a network setting by its name.
func ParseNetwork(s string) (Network, error) { return parse[Network]("network", networkNames, s) }

// ParseApproval reads an approval policy by its name.
func ParseApproval(s string) (Approval, error) {
	return parse[Approval]("approval policy", approvalNames, s)
}

func (m Mode) MarshalText() ([]byte, error)     { return text(modeNames, uint8(m)) }
func (n Network) MarshalText() ([]byte, error)  { return text(networkNames, uint8(n)) }
func (a Approval) MarshalText() ([]byte, error) { return text(approvalNames, uint8(a)) }

func (m *Mode) UnmarshalText(b []byte) (err error)    { *m, err = ParseMode(string(b)); return err }
func (n *Network) UnmarshalText(b []byte) (err error) { *n, err = ParseNetwork(string(b)); return err }
func (a *Approval) UnmarshalText(b []byte) (err error) {
	*a, err = ParseApproval(string(b))
	return err
}

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("undefined(%d)", i)
}

func text(names []string, i uint8) ([]byte, error) {
	if int(i) >= len(names) {
		return nil, fmt.Errorf("value %d is not defined", i)
	}
	return []byte(names[i]), nil
}

func parse[T ~uint8](what string, names []string, s string) (T, error) {
	i := slices.Index(names, s)
	if i < 0 {
		return 0, fmt.Errorf("unknown %s %q: use one of %s", what, s, strings.Join(names, ", "))
	}
	return T(i), nil
}
