// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"io"
)

// What can be done with fixtures from a distance.
const (
	DoPrepare  = "prepare"
	DoDescribe = "describe"
	DoRemove   = "remove"
)

// Order asks for fixtures where only a command can be started: in a pod.
type Order struct {
	Do       string     `json:"do"`
	Fixtures []Fixtures `json:"fixtures"`
}

// Account answers it. States are those of the fixtures, in their order; what was prepared is described, too.
type Account struct {
	States []State `json:"states,omitempty"`
	Where  Where   `json:"where"`
}

// Obey carries out one order, as a process beside the calls and outside of their sandbox.
func Obey(in io.Reader, out io.Writer) error {
	var o Order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	here := func(p string) string { return p }
	a := Account{Where: Where{}.Here()}
	for _, f := range o.Fixtures {
		switch o.Do {
		case DoRemove:
			if err := f.Remove(here); err != nil {
				return err
			}
			continue
		case DoPrepare:
			if err := f.Prepare(here, -1); err != nil {
				return err
			}
		case DoDescribe:
		default:
			return fmt.Errorf("%q cannot be done", o.Do)
		}
		s, err := f.Describe(here)
		if err != nil {
			return err
		}
		a.States = append(a.States, s)
	}
	return json.NewEncoder(out).Encode(a)
}
