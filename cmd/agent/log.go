// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/agentsession-dev/operator/internal/agent"
	"github.com/agentsession-dev/operator/internal/agent/eventlog"
)

func runLog(args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("say what to do with the log: verify, show or export")
	}
	var o eventlog.ShowOptions
	set := flag.NewFlagSet("agent log "+args[0], flag.ContinueOnError)
	set.SetOutput(stderr)
	if args[0] == "show" {
		set.Uint64Var(&o.From, "from", 0, "the first event shown")
		set.IntVar(&o.Width, "width", 0, "cut long texts to about so many characters; 0 is not at all")
	}
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	if set.NArg() != 1 {
		return errors.New("name the log's directory")
	}
	dir := set.Arg(0)
	switch args[0] {
	case "verify":
		return verify(stdout, dir)
	case "show":
		return eventlog.Show(stdout, dir, o)
	case "export":
		return eventlog.Export(stdout, dir)
	}
	return fmt.Errorf("there is no command log %.40q: use verify, show or export", args[0])
}

func verify(w io.Writer, dir string) error {
	r, err := eventlog.Verify(dir)
	if err != nil {
		return err
	}
	for _, s := range r.Segments {
		fmt.Fprintf(w, "%s: boot %d, events %d to %d", s.Name, s.Boot, s.First, s.Last)
		if s.Ignored > 0 {
			fmt.Fprintf(w, ", %d bytes outside the chain", s.Ignored)
		}
		fmt.Fprintln(w)
	}
	if r.Cut != nil {
		fmt.Fprintf(w, "torn tail: %s line %d, %d bytes: %s\n", r.Cut.File, r.Cut.Line, r.Cut.Bytes, r.Cut.Why)
	}
	fmt.Fprintf(w, "the chain holds: %d events, head %s\n", r.Events, r.Head.Digest)
	requests, err := agent.Rebuild(dir, version())
	if err != nil {
		return err
	}
	if requests.Foreign > 0 {
		fmt.Fprintf(w, "%d requests, the first in event %d, were sent by version %s and are written in another way by this one: check them with that version\n",
			requests.Foreign, requests.FirstForeign, requests.ForeignVersion)
	}
	_, err = fmt.Fprintf(w, "requests: %d are given by the log byte for byte\n", requests.Requests)
	return err
}
