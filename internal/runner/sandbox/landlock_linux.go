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

// FilesABI is the first Landlock ABI whose rules cover every way to modify a file's
// content, truncation included (Linux 6.2).
const FilesABI = 3

// First ABIs of what FilesABI does not have yet.
const (
	netABI      = 4 // Linux 6.7
	ioctlDevABI = 5 // Linux 6.10
)

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
	if !Scoped() {
		return errors.New("no scopes for signals in the Landlock of this kernel")
	}
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
// it, in every mode, where there are scopes. Below FilesABI there is no domain (-1):
// read-only then stands on the mount and the filter, and nothing else runs.
func rulesetOf(p policy.Profile, workspace string) (int, error) {
	if abi, _ := landlockABI(); abi < FilesABI { // 0 with an error
		if p.Mode == policy.ReadOnly {
			return -1, nil
		}
		return -1, fmt.Errorf("no Landlock that is new enough: ABI %d here, %d (Linux 6.2) is needed for %s", abi, FilesABI, p.Mode)
	}
	attr := &ll.RulesetAttr{Scoped: scopes}
	if p.Network == policy.NetworkNone {
		attr.HandledAccessNet = netAll // no rule for any port
	}
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
	node     bool // a device, not a directory
}

func rulesFor(m policy.Mode, workspace string) []fsRule {
	rules := []fsRule{{path: "/", access: fsRead}}
	for _, n := range writableNodes {
		rules = append(rules, fsRule{path: n, access: fsNode, optional: true, node: true})
	}
	if m == policy.WorkspaceWrite {
		rules = append(rules, fsRule{path: workspace, access: fsTree})
		for _, t := range temporaryTrees {
			rules = append(rules, fsRule{path: t, access: fsTree, optional: true})
		}
	}
	return rules
}

func newRuleset(attr *ll.RulesetAttr, rules []fsRule) (int, error) {
	abi, err := landlockABI()
	if err != nil {
		return -1, fmt.Errorf("asking for the Landlock ABI: %w", err)
	}
	known := knownTo(abi, attr)
	ruleset, err := ll.LandlockCreateRuleset(known, 0)
	if err != nil {
		return -1, fmt.Errorf("creating a Landlock ruleset: %w", err)
	}
	for _, r := range rules {
		r.access &= known.HandledAccessFS
		if err := addRule(ruleset, r); err != nil {
			_ = unix.Close(ruleset)
			return -1, fmt.Errorf("adding a Landlock rule for %s: %w", r.path, err)
		}
	}
	return ruleset, nil
}

// knownTo leaves out what an ABI does not have: never anything that a level which is
// reported there relies on.
func knownTo(abi int, a *ll.RulesetAttr) *ll.RulesetAttr {
	known := *a
	if abi < MinimumABI {
		known.Scoped = 0
	}
	if abi < ioctlDevABI {
		known.HandledAccessFS &^= ll.AccessFSIoctlDev
	}
	if abi < netABI {
		known.HandledAccessNet = 0
	}
	return &known
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
	if r.node {
		want = unix.S_IFCHR
	}
	if st.Mode&unix.S_IFMT != want {
		return fmt.Errorf("it is of another type (mode %o) than it must be", st.Mode)
	}
	return ll.LandlockAddPathBeneathRule(ruleset, &ll.PathBeneathAttr{ParentFd: fd, AllowedAccess: r.access}, 0)
}
