// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
)

// MinimumABI is the first Landlock ABI with scopes for signals and abstract sockets
// (Linux 6.12). Without them a call could signal the supervisor and its siblings.
const MinimumABI = 6

const (
	scopes = ll.ScopeSignal | ll.ScopeAbstractUnixSocket

	fsRead = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir
	fsAll  = fsRead | ll.AccessFSWriteFile | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeChar | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo |
		ll.AccessFSMakeBlock | ll.AccessFSMakeSym | ll.AccessFSRefer | ll.AccessFSTruncate | ll.AccessFSIoctlDev

	// fsTree is what a writable tree gets: everything but device nodes and their ioctls.
	fsTree = fsAll &^ (ll.AccessFSMakeChar | ll.AccessFSMakeBlock | ll.AccessFSIoctlDev)
	// fsNode is what a harmless device node gets.
	fsNode = ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev

	netAll = ll.AccessNetBindTCP | ll.AccessNetConnectTCP
)

// writableNodes may be written in every mode.
var writableNodes = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty"}

// temporaryTrees are writable beside the workspace from workspace-write on, where they exist.
var temporaryTrees = []string{"/tmp", "/dev/shm"}

// EnterScope puts the calling thread, and what it starts, into a Landlock domain that
// restricts only signals and abstract sockets, to the domain itself. It is what
// makes kill(-1) reach one call and nothing else.
func EnterScope() error {
	ruleset, err := newRuleset(&ll.RulesetAttr{Scoped: scopes, HandledAccessFS: ll.AccessFSRefer}, referAnywhere)
	if err != nil {
		return err
	}
	defer unix.Close(ruleset)
	if err := ll.LandlockRestrictSelf(ruleset, 0); err != nil {
		return fmt.Errorf("entering a Landlock domain: %w", err)
	}
	return nil
}

// referAnywhere permits links and renames between directories. A domain that says
// nothing about them forbids them as soon as a domain below it has any file rule.
var referAnywhere = []fsRule{{path: "/", access: ll.AccessFSRefer}}

// rulesetOf makes the rules of a profile, for a domain below EnterScope's. That second
// domain keeps the command from signalling or tracing the process that watches over
// it, in every mode.
func rulesetOf(p policy.Profile, workspace string) (int, error) {
	attr := &ll.RulesetAttr{Scoped: scopes, HandledAccessNet: netAll} // no rule for any port
	if p.Mode == policy.DangerFullAccess {
		attr.HandledAccessFS = ll.AccessFSRefer
		return newRuleset(attr, referAnywhere)
	}
	attr.HandledAccessFS = fsAll
	return newRuleset(attr, rulesFor(p.Mode, workspace))
}

type fsRule struct {
	path     string
	access   uint64
	optional bool
}

func rulesFor(m policy.Mode, workspace string) []fsRule {
	rules := []fsRule{{path: "/", access: fsRead}}
	for _, n := range writableNodes {
		rules = append(rules, fsRule{n, fsNode, true})
	}
	if m == policy.WorkspaceWrite {
		rules = append(rules, fsRule{path: workspace, access: fsTree})
		for _, t := range temporaryTrees {
			rules = append(rules, fsRule{t, fsTree, true})
		}
	}
	return rules
}

func newRuleset(attr *ll.RulesetAttr, rules []fsRule) (int, error) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return -1, fmt.Errorf("asking for the Landlock ABI: %w", err)
	}
	if abi < MinimumABI {
		return -1, fmt.Errorf("Landlock has ABI %d here; %d (Linux 6.12) is needed", abi, MinimumABI)
	}
	ruleset, err := ll.LandlockCreateRuleset(attr, 0)
	if err != nil {
		return -1, fmt.Errorf("creating a Landlock ruleset: %w", err)
	}
	for _, r := range rules {
		if err := addRule(ruleset, r); err != nil {
			_ = unix.Close(ruleset)
			return -1, fmt.Errorf("adding a Landlock rule for %s: %w", r.path, err)
		}
	}
	return ruleset, nil
}

// addRule names the tree itself: a symbolic link in its place is an error.
func addRule(ruleset int, r fsRule) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && r.optional {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	want := uint32(unix.S_IFDIR)
	if r.access == fsNode {
		want = unix.S_IFCHR
	}
	if st.Mode&unix.S_IFMT != want {
		return fmt.Errorf("it is of another type (mode %o) than it must be", st.Mode)
	}
	return ll.LandlockAddPathBeneathRule(ruleset, &ll.PathBeneathAttr{ParentFd: fd, AllowedAccess: r.access}, 0)
}
