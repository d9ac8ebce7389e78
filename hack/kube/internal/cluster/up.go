// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
	"github.com/agentsession-dev/operator/hack/kube/internal/host"
	"github.com/agentsession-dev/operator/hack/kube/internal/parts"
	"github.com/agentsession-dev/operator/hack/kube/internal/pki"
	"github.com/agentsession-dev/operator/hack/kube/internal/process"
)

// Up starts what does not run and returns when the node takes pods. It is for
// any state that a cluster can be in: absent, stopped, killed, in part or whole
// running. When it fails, nothing that it started is left running.
func (k *Cluster) Up(ctx context.Context) error {
	if err := host.InstallPackages(ctx, k.say); err != nil {
		return err
	}
	unlock, err := k.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := k.claim(); err != nil {
		return err
	}
	alive, dead := k.running()
	if len(dead) == 0 {
		k.say("the cluster is already running")
		k.quiet = true
		if err := k.awaitAPIServer(ctx); err != nil {
			return err
		}
		return k.await(ctx, time.Time{})
	}
	began := time.Now()
	if err := k.start(ctx, alive, dead); err != nil {
		k.say("starting did not succeed: stopping what was started (where the state is damaged: down, then up begins anew)")
		return errors.Join(err, k.undo(alive, dead))
	}
	k.say("the node is Ready %.1f s after the start", time.Since(began).Seconds())
	return nil
}

// claim makes the state directory ours, or finds that it is.
func (k *Cluster) claim() error {
	recorded, err := config.Load(k.StateDir)
	switch {
	case err == nil:
		return k.agree(recorded)
	case !errors.Is(err, config.ErrNoCluster):
		return err
	}
	entries, err := os.ReadDir(k.StateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty and holds no cluster: choose another directory with --state-dir", k.StateDir)
	}
	if err := os.MkdirAll(k.StateDir, 0o700); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	return k.Save()
}

// agree takes other ports for a cluster that is stopped, and anything for one
// that never came as far as storing an object. It refuses other changes: objects
// and addresses were made with the settings in the record.
func (k *Cluster) agree(recorded config.Config) error {
	if reflect.DeepEqual(recorded, k.Config) {
		return nil
	}
	alive, _ := k.running()
	ports := recorded
	ports.Ports = k.Ports
	if len(alive) == 0 && reflect.DeepEqual(ports, k.Config) {
		return k.Save()
	}
	if _, err := os.Stat(k.Path("etcd", "member")); len(alive) == 0 && errors.Is(err, os.ErrNotExist) {
		return errors.Join(host.Clean(recorded), k.Save())
	}
	return fmt.Errorf("the cluster in %s was made with other settings (%s): use those, or take it down first",
		k.StateDir, filepath.Join(k.StateDir, "cluster.json"))
}

func (k *Cluster) start(ctx context.Context, alive, dead []parts.Part) error {
	if len(alive) == 0 {
		// Whatever is still here is of a cluster that was killed or lost its machine.
		if err := host.Clean(k.Config); err != nil {
			return fmt.Errorf("cleaning up after an earlier run: %w", err)
		}
	} else {
		k.say("running: %s; starting: %s", names(alive), names(dead))
	}
	facts, err := k.prepare(ctx, dead)
	if err != nil {
		return err
	}
	began := time.Now().Truncate(time.Second) // the granularity of Kubernetes' timestamps
	for i, stage := range parts.Stages(k.Config) {
		for _, p := range stage {
			if !slices.ContainsFunc(dead, func(d parts.Part) bool { return d.Name == p.Name }) {
				continue
			}
			if err := k.launch(p); err != nil {
				return err
			}
		}
		if i == parts.Control {
			if err := k.awaitControl(ctx, facts); err != nil {
				return err
			}
		}
	}
	if !slices.ContainsFunc(dead, func(d parts.Part) bool { return d.Name == "kubelet" }) {
		began = time.Time{} // one that went on running has nothing new to report for minutes
	}
	return k.await(ctx, began)
}

// prepare does everything that must be there before the first program starts.
func (k *Cluster) prepare(ctx context.Context, dead []parts.Part) (parts.Facts, error) {
	for _, dir := range []string{"logs", "pids", "pki", "kubeconfigs", "etcd", "cni/conf", "pod-logs", "volume-plugins"} {
		if err := os.MkdirAll(k.Path(dir), 0o700); err != nil {
			return parts.Facts{}, err
		}
	}
	facts, err := host.Facts(k.BinDir, k.StateDir)
	if err != nil {
		return facts, err
	}
	if err := host.EnsureNetwork(k.Config); err != nil {
		return facts, err
	}
	if err := host.EnsureCgroup(k.Config); err != nil {
		return facts, err
	}
	wanted := func(part string) bool {
		return slices.ContainsFunc(dead, func(p parts.Part) bool { return p.Name == part })
	}
	if err := host.AwaitPorts(ctx, k.Config, wanted, k.say); err != nil {
		return facts, err
	}
	if err := k.issue(time.Now()); err != nil {
		return facts, fmt.Errorf("making certificates: %w", err)
	}
	if err := k.writeFiles(facts); err != nil {
		return facts, err
	}
	return facts, k.saveFacts(facts)
}

// issue makes the certificates. Parts that already run keep those that they have
// read: the same authorities have signed them.
func (k *Cluster) issue(now time.Time) error {
	dir := k.Path("pki")
	ca, err := pki.OpenAuthority(dir, parts.Authority, now)
	if err != nil {
		return err
	}
	frontProxy, err := pki.OpenAuthority(dir, parts.FrontProxyAuthority, now)
	if err != nil {
		return err
	}
	if err := pki.EnsureTokenKey(dir, parts.TokenKey); err != nil {
		return err
	}
	for _, leaf := range parts.Leaves(k.Config) {
		if err := ca.Issue(dir, leaf, now); err != nil {
			return err
		}
	}
	if err := frontProxy.Issue(dir, parts.FrontProxyLeaf(), now); err != nil {
		return err
	}
	for _, leaf := range parts.WithKubeconfig() {
		if err := pki.WriteKubeconfig(parts.Kubeconfig(k.Config, leaf), dir, parts.Authority, leaf, k.Name, k.APIServer()); err != nil {
			return err
		}
	}
	return pki.WriteKubeconfig(k.Kubeconfig(), dir, parts.Authority, parts.Admin, k.Name, k.APIServer())
}

func (k *Cluster) writeFiles(facts parts.Facts) error {
	files, err := parts.Files(k.Config, facts)
	if err != nil {
		return err
	}
	for path, content := range files {
		if have, err := os.ReadFile(k.Path(path)); err == nil && bytes.Equal(have, content) {
			continue // kube-proxy ends when its file is written, even with the same
		}
		if err := os.WriteFile(k.Path(path), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (k *Cluster) launch(p parts.Part) error {
	_, err := process.Start(process.Spec{
		Path: filepath.Join(k.BinDir, p.Name), Args: p.Args, Dir: k.StateDir,
		Env: []string{
			"PATH=" + k.BinDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"HOME=" + k.StateDir,
		},
		LogFile: p.LogFile(k.Config), PIDFile: p.PIDFile(k.Config),
	})
	return err
}

// awaitControl waits for what the node's programs need: the apiserver, and the
// image of which each pod begins.
func (k *Cluster) awaitControl(ctx context.Context, facts parts.Facts) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return k.awaitAPIServer(ctx) })
	g.Go(func() error {
		err := k.nodeImage(ctx, "--snapshotter="+facts.Snapshotter,
			"--pause="+filepath.Join(k.BinDir, "pause"), "--pause-image="+parts.PauseImage)
		if err != nil {
			return k.failure(k.part("containerd"), "does not take the pause image: "+err.Error())
		}
		return nil
	})
	return g.Wait()
}

func (k *Cluster) nodeImage(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(k.BinDir, "nodeimage"), append([]string{"--socket=" + k.Socket()}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimPrefix(strings.TrimSpace(string(out)), "error: "))
	}
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, parts.PauseImage) {
			k.say("%s", strings.TrimSpace(line))
		}
	}
	return nil
}

// undo stops what a start that failed has started, and only that.
func (k *Cluster) undo(alive, dead []parts.Part) error {
	if len(alive) == 0 {
		return k.stopAll()
	}
	return k.stop(dead)
}

func (k *Cluster) part(name string) parts.Part {
	all := parts.All(k.Config)
	return all[slices.IndexFunc(all, func(p parts.Part) bool { return p.Name == name })]
}

func names(ps []parts.Part) string {
	var s []string
	for _, p := range ps {
		s = append(s, p.Name)
	}
	return strings.Join(s, " ")
}
