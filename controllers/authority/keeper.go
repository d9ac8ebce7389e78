// SPDX-License-Identifier: Apache-2.0

package authority

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/agentsession-dev/operator/internal/wire"
)

const (
	// lookEvery is how often each replica looks at the Secret.
	lookEvery = time.Minute
	// overlap is how long the previous root stays at least: longer than any replica takes to
	// hear of the new one, and than a pod takes to appear that was built with the old one.
	overlap = 10 * time.Minute
)

// Keeper keeps the Authority and its Secret together, on every replica, and on the elected
// one replaces roots:
//
//	one root ──old, or asked for──► two: the new one signs ──no pod knows the previous──► one root
type Keeper struct {
	Authority *Authority
	Reader    client.Reader // of the apiserver: Secrets are in no cache
	Writer    client.Writer
	Namespace string
	// Elected is closed once this replica may write.
	Elected <-chan struct{}
	// InUse returns the hashes that the specs of living pods name.
	InUse func(context.Context) (map[string]int, error)
	// Changed is called when another root signs than before.
	Changed func(context.Context)
	// Every and Overlap are for tests; 0 are a minute and ten.
	Every, Overlap time.Duration
}

// Start implements manager.Runnable.
func (k *Keeper) Start(ctx context.Context) error {
	tick := time.NewTicker(cmp.Or(k.Every, lookEvery))
	defer tick.Stop()
	for {
		if err := k.Keep(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "The certificate authority is not kept up to date")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: who is elected next must
// already know which root signs.
func (*Keeper) NeedLeaderElection() bool { return false }

func (k *Keeper) elected() bool {
	select {
	case <-k.Elected:
		return true
	default:
		return false
	}
}

// Keep looks at the Secret once.
func (k *Keeper) Keep(ctx context.Context) error {
	key := types.NamespacedName{Namespace: k.Namespace, Name: SecretName}
	s, err := get(ctx, k.Reader, key)
	switch {
	case apierrors.IsNotFound(err) && k.elected():
		log.FromContext(ctx).Info("The Secret of the certificate authority is gone, writing it again", "secret", key)
		return k.restore(ctx, key)
	case err != nil:
		return err
	}
	roots, err := rootsOf(s)
	if err != nil {
		return fmt.Errorf("%w: what the operator read before stays in use; delete the Secret, and it is written again", err)
	}
	if k.Authority.set(roots) {
		log.FromContext(ctx).Info("Another certificate authority signs from now on", "caHash", roots[0].hash)
		k.Changed(ctx)
	}
	if !k.elected() {
		return nil
	}
	return k.replace(ctx, s, roots)
}

// restore writes the Secret from memory: the pods that run know these roots and no others.
func (k *Keeper) restore(ctx context.Context, key types.NamespacedName) error {
	k.Authority.mu.Lock()
	roots := k.Authority.roots
	k.Authority.mu.Unlock()
	data := map[string][]byte{}
	for i, names := range [][2]string{{wire.TLSCertFile, wire.TLSKeyFile}, {previousCertFile, previousKeyFile}} {
		if i >= len(roots) {
			break
		}
		private, err := encodeKey(roots[i].key)
		if err != nil {
			return err
		}
		data[names[0]], data[names[1]] = encodeCert(roots[i].cert.Raw), private
	}
	return k.Writer.Create(ctx, secret(key, data))
}

// replace makes a new root where one is due, or lets go of the previous one.
func (k *Keeper) replace(ctx context.Context, s *corev1.Secret, roots []*root) error {
	now := k.Authority.options.Now()
	_, asked := s.Annotations[RotateAnnotation]
	due := asked || roots[0].old(now)
	if len(roots) > 1 {
		free, err := k.free(ctx, roots, now)
		if err != nil {
			return err
		}
		switch {
		case free:
			delete(s.Data, previousCertFile)
			delete(s.Data, previousKeyFile)
		case due:
			return errors.New("a new certificate authority is due, and pods still know the one before the present: suspend and resume their sessions, or delete them (kubectl get ags, column Outdated)")
		default:
			return nil
		}
		log.FromContext(ctx).Info("No pod knows the previous certificate authority, letting it go", "caHash", roots[1].hash)
	}
	if due {
		cert, private, err := generate(now, k.Authority.options.Lifetime)
		if err != nil {
			return err
		}
		s.Data[previousCertFile], s.Data[previousKeyFile] = s.Data[wire.TLSCertFile], s.Data[wire.TLSKeyFile]
		s.Data[wire.TLSCertFile], s.Data[wire.TLSKeyFile] = cert, private
		delete(s.Annotations, RotateAnnotation)
	} else if len(roots) == 1 {
		return nil
	}
	if err := k.Writer.Update(ctx, s); err != nil {
		return fmt.Errorf("writing the certificate authority: %w", err)
	}
	roots, err := rootsOf(s)
	if err != nil {
		return err
	}
	if k.Authority.set(roots) {
		log.FromContext(ctx).Info("Another certificate authority signs from now on", "caHash", roots[0].hash)
		k.Changed(ctx)
	}
	return nil
}

// free reports whether the previous root is of no use any more.
func (k *Keeper) free(ctx context.Context, roots []*root, now time.Time) (bool, error) {
	if now.After(roots[1].cert.NotAfter) {
		return true, nil
	}
	if now.Before(roots[0].begun().Add(cmp.Or(k.Overlap, overlap))) {
		return false, nil
	}
	used, err := k.InUse(ctx)
	return err == nil && used[roots[1].hash] == 0, err
}
