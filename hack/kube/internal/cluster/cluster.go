// SPDX-License-Identifier: Apache-2.0

// Package cluster brings the parts together: it starts and stops them in order
// and says whether they work. What they are called with and what they leave on the
// machine is decided elsewhere.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
	"github.com/agentsession-dev/operator/hack/kube/internal/parts"
	"github.com/agentsession-dev/operator/hack/kube/internal/process"
)

// Cluster is a cluster on this machine, running or not.
type Cluster struct {
	config.Config
	BinDir string
	Out    io.Writer // for a person
	quiet  bool      // do not tell each step
}

const factsName = "machine.json"

// Open gives the cluster in a state directory as it was last started, whatever
// sources and flags say by now; config.ErrNoCluster when there is none.
func Open(stateDir string, out io.Writer) (*Cluster, error) {
	recorded, err := config.Load(stateDir)
	if err != nil {
		return nil, err
	}
	k := &Cluster{Config: recorded, Out: out}
	facts, err := k.facts()
	k.BinDir = facts.BinDir
	return k, err
}

// facts are those of the last start; none before the first has come that far.
func (k *Cluster) facts() (parts.Facts, error) {
	var f parts.Facts
	data, err := os.ReadFile(k.Path(factsName))
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("reading %s: %w", k.Path(factsName), err)
	}
	return f, nil
}

func (k *Cluster) saveFacts(f parts.Facts) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.Path(factsName+".new"), data, 0o600); err != nil {
		return err
	}
	return os.Rename(k.Path(factsName+".new"), k.Path(factsName))
}

func (k *Cluster) say(format string, args ...any) { fmt.Fprintf(k.Out, format+"\n", args...) }

// running splits the parts by whether their process lives.
func (k *Cluster) running() (alive, dead []parts.Part) {
	for _, p := range parts.All(k.Config) {
		if process.Read(p.PIDFile(k.Config)).Alive() {
			alive = append(alive, p)
		} else {
			dead = append(dead, p)
		}
	}
	return alive, dead
}

// lock keeps two commands from changing a cluster at once. It holds the directory
// around the state directory, so that nothing is left behind when that goes.
func (k *Cluster) lock() (unlock func(), err error) {
	around := filepath.Dir(k.StateDir)
	if err := os.MkdirAll(around, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(around)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		k.say("another command is changing a cluster in %s: waiting for it", around)
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			f.Close()
			return nil, fmt.Errorf("waiting for another command: %w", err)
		}
	}
	return func() { f.Close() }, nil
}

// failure is a part that does not work, with what it said last.
func (k *Cluster) failure(p parts.Part, what string) error {
	log := p.LogFile(k.Config)
	return fmt.Errorf("%s %s; the last lines of %s:\n%s", p.Name, what, log, process.Tail(log, 20))
}
