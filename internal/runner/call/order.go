// SPDX-License-Identifier: Apache-2.0

package call

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/agentsession-dev/operator/internal/policy"
)

// Order is what init is told about a call. It travels through a socket pair, never
// through arguments or the environment, which other processes can read.
type Order struct {
	Profile   policy.Profile `json:"profile"`
	Tool      string         `json:"tool"`
	Arguments string         `json:"arguments"` // canonical JSON
	Workspace string         `json:"workspace"`
	Version   string         `json:"version,omitempty"` // see wire.Start
}

// maxOrder is the largest order, in bytes.
const maxOrder = 8 << 20

func encodeOrder(o Order) ([]byte, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encoding order: %w", err)
	}
	if len(body) > maxOrder {
		return nil, fmt.Errorf("encoding order: %d bytes are more than %d", len(body), maxOrder)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...), nil //nolint:gosec // at most maxOrder
}

// readOrder reads one order and not a byte beyond it.
func readOrder(r io.Reader) (Order, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Order{}, fmt.Errorf("reading order: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxOrder {
		return Order{}, fmt.Errorf("reading order: %d bytes are more than %d", n, maxOrder)
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		return Order{}, fmt.Errorf("reading order: %w", err)
	}
	// Every part must be there: a missing profile must not become the zero one by chance.
	var raw struct {
		Profile *struct {
			Mode    *policy.Mode    `json:"mode"`
			Network *policy.Network `json:"network"`
		} `json:"profile"`
		Tool, Arguments, Workspace *string
		Version                    string // may be missing
	}
	d := json.NewDecoder(&body)
	d.DisallowUnknownFields()
	if err := d.Decode(&raw); err != nil {
		return Order{}, fmt.Errorf("reading order: %w", err)
	}
	p := raw.Profile
	if p == nil || p.Mode == nil || p.Network == nil || raw.Tool == nil || raw.Arguments == nil || raw.Workspace == nil {
		return Order{}, errors.New("reading order: a part is missing")
	}
	return Order{policy.Profile{Mode: *p.Mode, Network: *p.Network}, *raw.Tool, *raw.Arguments, *raw.Workspace, raw.Version}, nil
}

// End is how a call ended. Nothing that it started lives any more, unless Left says so.
type End struct {
	Status    int    `json:"status"`           // exit status of the command, if it exited
	Signal    string `json:"signal,omitempty"` // that ended it, if one did
	Processes int    `json:"processes"`        // left over by the command and ended with it
	Left      bool   `json:"left,omitempty"`   // only the command itself has ended: the kernel has no scopes, sweep the container
}
