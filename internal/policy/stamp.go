// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Stamp says which objects a policy was resolved from. It travels beside the
// policy and is no part of its digest: the same policy may have many stamps.
type Stamp struct {
	SessionUID        string    `json:"sessionUID"`
	SessionGeneration int64     `json:"sessionGeneration"`
	ClassUID          string    `json:"classUID"`
	ClassCreated      time.Time `json:"classCreated"` // whole seconds, as the apiserver keeps it
	ClassGeneration   int64     `json:"classGeneration"`

	// The namespace has no generation: labels are metadata. Both are empty in what an
	// operator said that knew no ceiling of namespaces.
	NamespaceUID     string `json:"namespaceUID,omitempty"`
	NamespaceVersion string `json:"namespaceVersion,omitempty"` // resource version, a decimal number
}

// GoesBack says why replacing old by new would apply older inputs, or "" when it
// would not. It is what keeps a controller with a stale cache from undoing a newer
// change.
func (s Stamp) GoesBack(old Stamp) string {
	switch {
	case s.SessionUID == old.SessionUID && s.SessionGeneration < old.SessionGeneration:
		return fmt.Sprintf("session generation %d is older than %d", s.SessionGeneration, old.SessionGeneration)
	case s.ClassUID == old.ClassUID && s.ClassGeneration < old.ClassGeneration:
		return fmt.Sprintf("class generation %d is older than %d", s.ClassGeneration, old.ClassGeneration)
	case s.ClassUID != old.ClassUID && s.ClassCreated.Before(old.ClassCreated):
		return "the class is older than the one in force"
	case s.NamespaceUID == old.NamespaceUID && olderVersion(s.NamespaceVersion, old.NamespaceVersion):
		return fmt.Sprintf("namespace version %.40s is older than %.40s", s.NamespaceVersion, old.NamespaceVersion)
	}
	return ""
}

// olderVersion compares resource versions as the decimal numbers that they are, of any
// size. What is no number, or missing, is older than nothing.
func olderVersion(a, b string) bool {
	if !decimal(a) || !decimal(b) {
		return false
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0
}

func decimal(s string) bool {
	return s != "" && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// Accept decides whether a push may replace what is in force: a push that goes
// back is taken only when it narrows, or when it names the stamp in force as the
// one that it replaces (compare and swap). It returns "" or why not.
func Accept(inForce *Stamp, from Policy, push Stamp, to Policy, replaces *Stamp) string {
	if inForce == nil {
		return ""
	}
	why := push.GoesBack(*inForce)
	if why == "" || to.within(from) || (replaces != nil && replaces.equal(*inForce)) {
		return ""
	}
	return why
}

func (s Stamp) equal(t Stamp) bool {
	return s.SessionUID == t.SessionUID && s.SessionGeneration == t.SessionGeneration &&
		s.ClassUID == t.ClassUID && s.ClassCreated.Equal(t.ClassCreated) && s.ClassGeneration == t.ClassGeneration &&
		s.NamespaceUID == t.NamespaceUID && s.NamespaceVersion == t.NamespaceVersion
}
