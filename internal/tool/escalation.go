// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/agentsession-dev/operator/internal/policy"
)

// maxJustification bounds what a model may say to the person who decides, in bytes.
const maxJustification = 1000

// permissionsKey is the argument that names the wanted mode.
const permissionsKey = "sandbox_permissions"

// wider are the modes that a call may ask for.
var wider = []policy.Mode{policy.WorkspaceWrite, policy.DangerFullAccess}

// Wants is a call's wish to run, once, under a wider mode than the standing one.
type Wants struct {
	Mode          policy.Mode
	Justification string // the model's own words
}

// escalation are the arguments by which a call asks for more. They say nothing about what the
// call does: a tools container never sees them.
type escalation struct {
	SandboxPermissions string `json:"sandbox_permissions,omitempty" jsonschema:"leave this out, unless the result of this exact call said that it may be made once more with it: the sandbox mode that this one call needs"`
	Justification      string `json:"justification,omitempty" jsonschema:"only with sandbox_permissions: why this one call needs it, for the person who decides"`
}

// escalates are the arguments of the tools that can ask for more.
type escalates interface{ take() (*Wants, error) }

// take empties the arguments of the wish and returns it.
func (e *escalation) take() (*Wants, error) {
	given := *e
	*e = escalation{}
	if given == (escalation{}) {
		return nil, nil
	}
	mode, err := policy.ParseMode(given.SandboxPermissions)
	switch {
	case given.SandboxPermissions == "":
		return nil, errors.New("justification is only taken together with sandbox_permissions")
	case err != nil || mode < wider[0]:
		return nil, fmt.Errorf("sandbox_permissions must be one of %s, %s", wider[0], wider[1])
	case strings.TrimSpace(given.Justification) == "":
		return nil, errors.New("sandbox_permissions needs a justification: say why this one call needs it")
	case len(given.Justification) > maxJustification:
		return nil, fmt.Errorf("the justification has %d bytes; at most %d are taken", len(given.Justification), maxJustification)
	case !utf8.ValidString(given.Justification):
		return nil, errors.New("the justification is not valid UTF-8")
	}
	return &Wants{Mode: mode, Justification: given.Justification}, nil
}

// Escalates reports whether calls of the tool may ask for a wider mode.
func (t Tool) Escalates() bool {
	_, ok := t.arguments().(escalates)
	return ok
}
