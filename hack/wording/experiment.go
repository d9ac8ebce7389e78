// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// errGate is the end of an experiment whose positive control showed nothing.
var errGate = errors.New("the positive control did not show its effect: the other arms were not run")

// experiment runs what a header has planned.
type experiment struct {
	Header
	log      *rawLog
	run      func(context.Context, Arm, Task) (Session, error)
	progress io.Writer
}

// do runs every slot that has no valid session yet. The control comes first, and nothing passes a
// closed gate.
func (x *experiment) do(ctx context.Context) error {
	err := x.slots(ctx)
	if err != nil && !errors.Is(err, errGate) {
		return errors.Join(err, x.log.add(line{Stopped: err.Error()}))
	}
	return err
}

func (x *experiment) slots(ctx context.Context) error {
	gated := false
	for i, s := range x.Order {
		arm := x.arm(s.Arm)
		if !arm.Control && !gated {
			if err := x.passGate(); err != nil {
				return err
			}
			gated = true
		}
		if err := x.fill(ctx, i, arm, s); err != nil {
			return err
		}
	}
	if !gated { // the control alone was asked for
		return x.passGate()
	}
	return nil
}

func (x *experiment) passGate() error {
	g := gate(tallyOf(sessionsOf(x.log.lines), x.control().Name), x.N)
	if !x.judged(g) {
		if err := x.log.add(line{Gate: &g}); err != nil {
			return err
		}
	}
	if !g.Open {
		return errGate
	}
	return nil
}

// judged reports whether this judgement is in the log already.
func (x *experiment) judged(g Gate) bool {
	for _, l := range x.log.lines {
		if l.Gate != nil && *l.Gate == g {
			return true
		}
	}
	return false
}

// fill runs sessions until the slot has a valid one.
func (x *experiment) fill(ctx context.Context, place int, arm Arm, s Slot) error {
	tries := 0
	for _, done := range sessionsOf(x.log.lines) {
		if done.Arm == s.Arm && done.Slot == s.Slot {
			if done.Outcome != Excluded {
				return nil
			}
			tries++
		}
	}
	for range maxFailures {
		tries++
		got, err := x.run(ctx, arm, x.Tasks[s.Task])
		if err != nil {
			return err
		}
		got.Arm, got.Task, got.Slot, got.Try = s.Arm, x.Tasks[s.Task].Name, s.Slot, tries
		if err := x.log.add(line{Session: &got}); err != nil {
			return err
		}
		fmt.Fprintf(x.progress, "%d of %d: %s, %s: %s\n", place+1, len(x.Order), s.Arm, got.Task, got.Outcome)
		if got.Outcome != Excluded {
			return nil
		}
	}
	return fmt.Errorf("the model endpoint failed %d times in a row: run the same again when it is well, and it goes on from here", maxFailures)
}
