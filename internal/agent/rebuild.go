// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/agentsession-dev/operator/internal/agent/eventlog"
	"github.com/agentsession-dev/operator/internal/agent/model"
)

// Rebuilt is what Rebuild found.
type Rebuilt struct {
	Requests int // that the log gives byte for byte
	// Foreign counts those that another version of the agent sent and that this one renders in another way.
	Foreign int
	// FirstForeign is the event of the first of them, and ForeignVersion who sent it.
	FirstForeign   uint64
	ForeignVersion string
}

// Rebuild makes every request of a log anew, from the events before it alone, and compares the digests of
// the bytes with those that were sent. That they differ is an error where this version of the agent sent
// them. The log in dir is read and not changed.
func Rebuild(dir, version string) (Rebuilt, error) {
	var r Rebuilt
	f := newFold()
	sender := ""
	for e, err := range eventlog.Read(dir) {
		if err != nil {
			return r, err
		}
		switch e.Type {
		case eventlog.TypeBoot:
			var b eventlog.Boot
			if err := e.Decode(&b); err != nil {
				return r, err
			}
			sender = b.AgentVersion
		case eventlog.TypeRequestSent:
			switch err := f.rebuilds(e); {
			case err == nil:
				r.Requests++
			case sender == version:
				return r, err
			default:
				if r.Foreign++; r.Foreign == 1 {
					r.FirstForeign, r.ForeignVersion = e.Seq, sender
				}
			}
		}
		if err := f.apply(e); err != nil {
			return r, fmt.Errorf("the event log is whole but makes no sense: %w", err)
		}
	}
	return r, nil
}

// rebuilds makes the request that an event names from what the fold knows before it.
func (f *fold) rebuilds(e eventlog.Event) error {
	var sent eventlog.RequestSent
	if err := e.Decode(&sent); err != nil {
		return err
	}
	request, snapshot, err := f.request()
	if sent.Ask != "" {
		request, snapshot, err = f.summaryRequest(sent.UpTo, sent.Ask)
	}
	if err != nil {
		return fmt.Errorf("rebuilding the request of event %d: %w", e.Seq, err)
	}
	provider, err := model.New(f.header.Provider, model.Config{BaseURL: "https://model.invalid"}) // nothing is sent
	if err != nil {
		return fmt.Errorf("rebuilding the request of event %d: %w", e.Seq, err)
	}
	defer provider.Close()
	prepared, err := provider.Prepare(request)
	if err != nil {
		return fmt.Errorf("rebuilding the request of event %d: %w", e.Seq, err)
	}
	if prepared.Digest() != sent.Digest || len(prepared.Body()) != sent.Bytes || snapshot != sent.SnapshotSeq {
		return fmt.Errorf("the log does not give the request of event %d: %d bytes with the digest %.12s were sent, and it gives %d with %.12s",
			e.Seq, sent.Bytes, sent.Digest, len(prepared.Body()), prepared.Digest())
	}
	return nil
}
