// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/agentsession-dev/operator/internal/policy"
	"github.com/agentsession-dev/operator/internal/tool"
)

// Slot is a place for one valid session.
type Slot struct {
	Arm  string `json:"arm"`
	Task int    `json:"task"`
	Slot int    `json:"slot"`
}

// plan decides everything before the first session. Names are the arms wanted beside the control;
// none means all.
func plan(e Endpoint, evidence bool, p policy.Policy, n int, seed uint64, names []string) (Header, error) {
	if n < 1 || n > 1000 {
		return Header{}, fmt.Errorf("n is %d: from 1 to 1000 sessions of each arm make sense", n)
	}
	arms, err := chosen(allArms(p), names)
	if err != nil {
		return Header{}, err
	}
	h := Header{
		Version: formatVersion, Evidence: evidence, Endpoint: e, N: n, Seed: seed, Rules: theRules(), Arms: arms, Tasks: tasks,
		Policy: string(policy.Encode(p).Bytes), Order: order(arms, n, seed),
	}
	h.Tools, err = toolsDigest()
	return h, err
}

func chosen(arms []Arm, names []string) ([]Arm, error) {
	if len(names) == 0 {
		return arms, nil
	}
	var known []string
	for _, a := range arms {
		known = append(known, a.Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("there is no arm %q; the arms are %s", n, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(arms, func(a Arm) bool { return !a.Control && !slices.Contains(names, a.Name) }), nil
}

// order puts the control's sessions first, because the others wait for its effect, and all others in
// one random order, so that what changes with time meets all arms alike.
func order(arms []Arm, n int, seed uint64) []Slot {
	var control, others []Slot
	for _, a := range arms {
		for i := range n {
			s := Slot{a.Name, i % len(tasks), i}
			if a.Control {
				control = append(control, s)
			} else {
				others = append(others, s)
			}
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for _, slots := range [][]Slot{control, others} {
		r.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	}
	return append(control, others...)
}

// toolsDigest is of all that the model is told of the tools: part of what is measured.
func toolsDigest() (string, error) {
	b, err := json.Marshal(tool.All())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

func (h Header) arm(name string) Arm {
	i := slices.IndexFunc(h.Arms, func(a Arm) bool { return a.Name == name })
	return h.Arms[i]
}

func (h Header) control() Arm {
	i := slices.IndexFunc(h.Arms, func(a Arm) bool { return a.Control })
	return h.Arms[i]
}
