// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"
)

func TestAccept(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	inForce := Stamp{SessionUID: "s", SessionGeneration: 5, ClassUID: "c", ClassCreated: now, ClassGeneration: 3, NamespaceUID: "n", NamespaceVersion: "99"}
	change := func(f func(*Stamp)) Stamp { s := inForce; f(&s); return s }
	older := change(func(s *Stamp) { s.SessionGeneration = 4 })
	withoutNamespace := change(func(s *Stamp) { s.NamespaceUID, s.NamespaceVersion = "", "" })
	wide := Policy{Mode: DangerFullAccess, Ceiling: Unbounded}
	narrow := Policy{Ceiling: Unbounded}
	for name, tc := range map[string]struct {
		inForce  *Stamp
		from, to Policy
		push     Stamp
		replaces *Stamp
		want     bool
	}{
		"the first push":                                     {nil, Policy{}, wide, inForce, nil, true},
		"the same stamp again":                               {&inForce, wide, wide, inForce, nil, true},
		"a newer session generation widens":                  {&inForce, narrow, wide, change(func(s *Stamp) { s.SessionGeneration = 6 }), nil, true},
		"an older session generation does not widen":         {&inForce, narrow, wide, older, nil, false},
		"an older session generation may narrow":             {&inForce, wide, narrow, older, nil, true},
		"an older class generation does not widen":           {&inForce, narrow, wide, change(func(s *Stamp) { s.ClassGeneration = 2 }), nil, false},
		"a class made again, younger, widens":                {&inForce, narrow, wide, change(func(s *Stamp) { s.ClassUID, s.ClassGeneration, s.ClassCreated = "d", 1, now.Add(time.Second) }), nil, true},
		"another class that is older does not widen":         {&inForce, narrow, wide, change(func(s *Stamp) { s.ClassUID, s.ClassCreated = "d", now.Add(-time.Second) }), nil, false},
		"an older namespace version does not widen":          {&inForce, narrow, wide, change(func(s *Stamp) { s.NamespaceVersion = "98" }), nil, false},
		"a namespace version of more digits is newer":        {&inForce, narrow, wide, change(func(s *Stamp) { s.NamespaceVersion = "100" }), nil, true},
		"an operator that knows no namespaces is taken":      {&inForce, narrow, wide, change(func(s *Stamp) { s.NamespaceUID, s.NamespaceVersion = "", "" }), nil, true},
		"a version that is no number is older than nothing":  {&inForce, narrow, wide, change(func(s *Stamp) { s.NamespaceVersion = "0x1" }), nil, true},
		"an agent that was told of no namespace takes one":   {&withoutNamespace, narrow, wide, inForce, nil, true},
		"going back is taken when it names what it replaces": {&inForce, narrow, wide, older, &inForce, true},
		"naming another stamp does not help":                 {&inForce, narrow, wide, older, &older, false},
	} {
		t.Run(name, func(t *testing.T) {
			if why := Accept(tc.inForce, tc.from, tc.push, tc.to, tc.replaces); (why == "") != tc.want {
				t.Errorf("Accept() = %q, want taken: %v", why, tc.want)
			}
		})
	}
}
