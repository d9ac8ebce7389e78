// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentsession-dev/operator/internal/runner/runnertest"
	"github.com/agentsession-dev/operator/internal/wire"
)

// pod is two tools containers, each with a real supervisor, and the directories of an agent.
type pod struct {
	dir        string // of the agent: out of the tools' sight
	volumes    *runnertest.Pod
	containers []*runnertest.Container
}

func startPod(toolbox string) (_ *pod, err error) {
	p := &pod{}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.dir, err = os.MkdirTemp("", "wording"); err != nil {
		return nil, err
	}
	if p.volumes, err = runnertest.MakePod(toolbox); err != nil {
		return nil, err
	}
	for name, content := range files {
		path := p.volumes.Path("workspace", name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644),
			os.Chown(filepath.Dir(path), runnertest.ToolsUser, runnertest.ToolsUser), os.Chown(path, runnertest.ToolsUser, runnertest.ToolsUser))
	}
	return p, err
}

func (p *pod) start() error {
	for _, name := range []string{wire.ToolsRO, wire.ToolsRW} {
		c, err := p.volumes.Run(name, runnertest.Options{})
		if err != nil {
			return fmt.Errorf("starting %s: %w", name, err)
		}
		p.containers = append(p.containers, c)
	}
	return nil
}

func (p *pod) stop() {
	for _, c := range p.containers {
		c.Kill()
	}
	if p.volumes != nil {
		_ = p.volumes.Remove() // scratch
	}
	_ = os.RemoveAll(p.dir)
}

// files is a digest of all that is in the workspace.
func (p *pod) files() (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(p.volumes.Path("workspace"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %s %s\n", path, info.Mode(), info.ModTime())
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%x\n", sha256.Sum256(b))
		}
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
