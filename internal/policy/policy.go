// SPDX-License-Identifier: Apache-2.0

// Package policy answers one question: what may this session do, and how is
// that said? It decides what a policy is, which of two is wider, and the words
// that state it. It reads no files, no clock and no cluster.
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Policy is the tuple that governs a session: what its tools may reach, whether
// a person may be asked, and the ceiling that bounds both. The zero value is the
// narrowest policy there is.
type Policy struct {
	Mode     Mode     `json:"mode"`
	Network  Network  `json:"network"`
	Approval Approval `json:"approval"`
	Ceiling  Ceiling  `json:"ceiling"`
}

// Ceiling bounds every part of a policy. The zero value is the lowest ceiling;
// Unbounded is the highest.
type Ceiling struct {
	Mode     Mode     `json:"mode"`
	Network  Network  `json:"network"`
	Approval Approval `json:"approval"`
}

// Unbounded is the ceiling that bounds nothing.
var Unbounded = Ceiling{Mode: DangerFullAccess, Network: NetworkOpen, Approval: ApprovalAsk}

// Profile is the kernel-facing form of a policy for one tool call.
type Profile struct {
	Mode    Mode    `json:"mode"`
	Network Network `json:"network"`
}

// Profile returns what a tool call under p runs with.
func (p Policy) Profile() Profile { return Profile{Mode: p.Mode, Network: p.Network} }

// documentVersion is the version of the policy's bytes.
const documentVersion = 1

// Document is a policy together with the bytes that say it. The bytes are made
// once, by the controller; everybody else compares digests and never encodes
// a policy again in order to compare.
type Document struct {
	Policy Policy
	Bytes  []byte
	Digest Digest
}

// Digest is the lower-case hex SHA-256 of a policy's bytes.
type Digest string

// Short returns the first 12 characters, for logs.
func (d Digest) Short() string { return string(d[:min(12, len(d))]) }

type document struct {
	Version int `json:"version"`
	Policy
}

// Encode makes the document of p. Equal policies give equal bytes.
func Encode(p Policy) Document {
	b, err := json.Marshal(document{documentVersion, p})
	if err != nil {
		panic(fmt.Sprintf("policy: encoding %+v: %v", p, err)) // only an undefined enum value can cause it
	}
	return Document{Policy: p, Bytes: b, Digest: digestOf(b)}
}

// Decode reads a policy's bytes. Unknown fields are ignored; an unknown version
// or enum value, or a missing part, is an error: a policy is never guessed.
func Decode(b []byte) (Document, error) {
	var d struct {
		Version  int       `json:"version"`
		Mode     *Mode     `json:"mode"`
		Network  *Network  `json:"network"`
		Approval *Approval `json:"approval"`
		Ceiling  *struct {
			Mode     *Mode     `json:"mode"`
			Network  *Network  `json:"network"`
			Approval *Approval `json:"approval"`
		} `json:"ceiling"`
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return Document{}, fmt.Errorf("decoding policy: %w", err)
	}
	if d.Version != documentVersion {
		return Document{}, fmt.Errorf("decoding policy: version %d is not known here, only %d", d.Version, documentVersion)
	}
	c := d.Ceiling
	if d.Mode == nil || d.Network == nil || d.Approval == nil || c == nil || c.Mode == nil || c.Network == nil || c.Approval == nil {
		return Document{}, fmt.Errorf("decoding policy: a part is missing in %.200q", b)
	}
	p := Policy{Mode: *d.Mode, Network: *d.Network, Approval: *d.Approval, Ceiling: Ceiling{*c.Mode, *c.Network, *c.Approval}}
	if Meet(p, p.Ceiling) != p {
		return Document{}, fmt.Errorf("decoding policy: %s, %s, %s exceeds its own ceiling", p.Mode, p.Network, p.Approval)
	}
	return Document{Policy: p, Bytes: b, Digest: digestOf(b)}, nil
}

func digestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest(hex.EncodeToString(sum[:]))
}
