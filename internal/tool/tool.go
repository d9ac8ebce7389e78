// SPDX-License-Identifier: Apache-2.0

// Package tool says what each tool is called, what it tells the model, which
// arguments it takes and whether it only reads. It decodes arguments, strictly and
// once, and performs nothing.
package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// MaxArguments is the largest argument text that a call may carry, in bytes.
const MaxArguments = 1 << 20

// Tool is one tool as the model sees it.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // from All: the JSON schema of its arguments; the same bytes in every build
	ReadsOnly   bool            // calls of it may run beside one another

	schema    func() schema
	decode    func([]byte) (Arguments, error)
	arguments func() Arguments // empty ones
}

// schema is made when it is first asked for: the processes of a call never do.
type schema struct {
	raw      json.RawMessage
	resolved *jsonschema.Resolved
}

// Arguments are the decoded arguments of one tool: a pointer to the struct of its name.
type Arguments interface{ check() error }

// All returns every tool, in the order in which the model sees them.
func All() []Tool {
	tools := slices.Clone(all)
	for i, t := range tools {
		tools[i].Schema = t.schema().raw
	}
	return tools
}

var all = []Tool{readTool, writeTool, editTool, globTool, grepTool, bashTool, terminalTool}

// Named returns the tool of that name.
func Named(name string) (Tool, bool) {
	i := slices.IndexFunc(all, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return Tool{}, false
	}
	return all[i], true
}

// Call is a decoded tool call: one value from which everything else is made.
type Call struct {
	Tool      Tool
	Arguments Arguments
	Canonical []byte // the arguments, encoded again without what was not understood and without Wants
	Digest    string // lower-case hex SHA-256 of the tool's name, a zero byte and Canonical
	Wants     *Wants // set where the call asks to run under a wider mode
}

// Decode reads the arguments that a model gave for a tool. Whatever is not exactly
// what the schema says is an error whose text is meant for the model: keys that
// are unknown, given twice or in another case, invalid UTF-8, trailing data.
func Decode(name string, raw []byte) (Call, error) {
	t, ok := Named(name)
	if !ok {
		return Call{}, fmt.Errorf("there is no tool named %.60q; the tools are %s", name, names())
	}
	if len(raw) > MaxArguments {
		return Call{}, fmt.Errorf("the arguments have %d bytes; at most %d are taken", len(raw), MaxArguments)
	}
	instance, err := strictObject(raw)
	if err != nil {
		return Call{}, fmt.Errorf("arguments of %s: %w", name, err)
	}
	if err := t.schema().resolved.Validate(instance); err != nil {
		return Call{}, fmt.Errorf("arguments of %s: %w", name, err)
	}
	return t.call(raw)
}

// Canonical reads arguments that Decode has made canonical. Whatever has another form is
// an error: what an encoder makes of the decoded values must be the same bytes.
func Canonical(name string, raw []byte) (Call, error) {
	t, ok := Named(name)
	if !ok {
		return Call{}, fmt.Errorf("there is no tool named %.60q; the tools are %s", name, names())
	}
	c, err := t.call(raw)
	if err == nil && !bytes.Equal(c.Canonical, raw) {
		err = fmt.Errorf("arguments of %s: they are not in their canonical form", name)
	}
	return c, err
}

func (t Tool) call(raw []byte) (Call, error) {
	args, err := t.decode(raw)
	if err != nil {
		return Call{}, fmt.Errorf("arguments of %s: %w", t.Name, err)
	}
	if err := args.check(); err != nil {
		return Call{}, fmt.Errorf("arguments of %s: %w", t.Name, err)
	}
	var wants *Wants
	if e, ok := args.(escalates); ok {
		if wants, err = e.take(); err != nil {
			return Call{}, fmt.Errorf("arguments of %s: %w", t.Name, err)
		}
	}
	canonical, err := canonicalJSON(args)
	if err != nil {
		return Call{}, fmt.Errorf("arguments of %s: %w", t.Name, err)
	}
	return Call{Tool: t, Arguments: args, Canonical: canonical, Digest: DigestOf(t.Name, canonical), Wants: wants}, nil
}

// DigestOf is the digest of a call with canonical arguments.
func DigestOf(name string, canonical []byte) string {
	h := sha256.New()
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write(canonical)
	return hex.EncodeToString(h.Sum(nil))
}

func names() string {
	var b bytes.Buffer
	for i, t := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(t.Name)
	}
	return b.String()
}

// canonicalJSON encodes fields in the order of the struct and escapes nothing that
// JSON does not demand.
func canonicalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// define makes a tool whose arguments are an A.
func define[A any, P interface {
	*A
	Arguments
}](name, description string, readsOnly bool) Tool {
	return Tool{
		Name: name, Description: description, ReadsOnly: readsOnly,
		schema:    sync.OnceValue(func() schema { return schemaOf[A](name) }),
		arguments: func() Arguments { return P(new(A)) },
		decode: func(raw []byte) (Arguments, error) {
			a := new(A)
			if err := json.Unmarshal(raw, a); err != nil {
				return nil, err
			}
			return P(a), nil
		},
	}
}

func schemaOf[A any](name string) schema {
	s, err := jsonschema.For[A](nil)
	if err != nil {
		panic(fmt.Sprintf("tool %s: %v", name, err))
	}
	if modes := s.Properties[permissionsKey]; modes != nil {
		for _, m := range wider {
			modes.Enum = append(modes.Enum, m.String())
		}
	}
	if c, more := any(new(A)).(interface{ constrain(s *jsonschema.Schema) }); more {
		c.constrain(s)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		panic(fmt.Sprintf("tool %s: %v", name, err))
	}
	raw, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("tool %s: %v", name, err))
	}
	return schema{raw, resolved}
}
