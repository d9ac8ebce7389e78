// SPDX-License-Identifier: Apache-2.0

package policy

// Request is what a session's spec asks for.
type Request struct {
	Mode     Mode
	Network  Network
	Approval Approval
}

// Source names whose ceiling narrowed a part.
type Source string

const (
	Class     Source = "Class"
	Namespace Source = "Namespace"
)

// Clamp says that one part was asked wider than a ceiling allows.
type Clamp struct {
	Field     string // "mode", "network" or "approval"
	Requested string
	Given     string
	By        Source // the lowest ceiling; the class where both are equal
}

// Resolve makes the policy of a session: the lowest of what is asked, what the
// class allows and what the namespace allows, part by part. The clamps are in
// a fixed order: mode, network, approval.
func Resolve(ask Request, class, namespace Ceiling) (Policy, []Clamp) {
	ceiling := class.Meet(namespace)
	p := Meet(Policy{Mode: ask.Mode, Network: ask.Network, Approval: ask.Approval}, ceiling)
	p.Ceiling = ceiling
	var clamps []Clamp
	note := func(field string, asked, given interface{ String() string }, byClass bool) {
		if asked.String() == given.String() {
			return
		}
		by := Namespace
		if byClass {
			by = Class
		}
		clamps = append(clamps, Clamp{Field: field, Requested: asked.String(), Given: given.String(), By: by})
	}
	note("mode", ask.Mode, p.Mode, class.Mode <= namespace.Mode)
	note("network", ask.Network, p.Network, class.Network <= namespace.Network)
	note("approval", ask.Approval, p.Approval, class.Approval <= namespace.Approval)
	return p, clamps
}

// Meet bounds p by a ceiling, part by part; p's own ceiling is left alone.
func Meet(p Policy, c Ceiling) Policy {
	p.Mode, p.Network, p.Approval = min(p.Mode, c.Mode), min(p.Network, c.Network), min(p.Approval, c.Approval)
	return p
}

// Meet returns the lower of two ceilings, part by part.
func (c Ceiling) Meet(d Ceiling) Ceiling {
	return Ceiling{Mode: min(c.Mode, d.Mode), Network: min(c.Network, d.Network), Approval: min(c.Approval, d.Approval)}
}

// Meet returns the narrower of two profiles, part by part.
func (p Profile) Meet(q Profile) Profile {
	return Profile{Mode: min(p.Mode, q.Mode), Network: min(p.Network, q.Network)}
}

// Within reports whether p is no wider than q in any part.
func (p Profile) Within(q Profile) bool { return p.Meet(q) == p }

// Narrows reports whether going from one policy to another is a narrowing: a
// change that is not wider-or-equal in every part, ceilings included.
func Narrows(from, to Policy) bool {
	return !from.within(to)
}

// EndsProcesses reports whether going from one policy to another ends what runs:
// a narrowing of mode or network, the two parts that a process keeps once it has them.
func EndsProcesses(from, to Policy) bool { return !from.Profile().Within(to.Profile()) }

// Widest is the widest profile that a call under p can have: its own, and where a person may be
// asked, a mode up to the ceiling's.
func (p Policy) Widest() Profile {
	w := p.Profile()
	if p.Approval == ApprovalAsk {
		w.Mode = max(w.Mode, p.Ceiling.Mode)
	}
	return w
}

// Withdraws reports whether going from one policy to another ends what was asked of a person
// under the first, answered or not: the answer was meant for what held then.
func Withdraws(from, to Policy) bool {
	return from.Profile() != to.Profile() || from.Approval != to.Approval || from.Ceiling.Meet(to.Ceiling) != from.Ceiling
}

func (p Policy) within(q Policy) bool {
	return p.Mode <= q.Mode && p.Network <= q.Network && p.Approval <= q.Approval && p.Ceiling.Meet(q.Ceiling) == p.Ceiling
}
