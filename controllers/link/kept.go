// SPDX-License-Identifier: Apache-2.0

package link

import (
	"container/list"
	"sync"
	"time"
)

// kept are the links to idle agents that are held nevertheless, so that the next switch need
// not dial: those that were told something last, and no more than a bound, because each costs
// memory. Its lock is taken while a link's is held, never the other way round.
type kept struct {
	most int

	mu    sync.Mutex
	links list.List // of *link; the one that was told something last is at the back
}

// add puts a link last and returns the one that has no place any more; nil when all have.
func (l *kept) add(k *link) (leaves *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.place == nil {
		k.place = l.links.PushBack(k)
	} else {
		l.links.MoveToBack(k.place)
	}
	if l.links.Len() <= l.most {
		return nil
	}
	leaves = l.links.Front().Value.(*link)
	l.removeLocked(leaves)
	return leaves
}

func (l *kept) remove(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(k)
}

func (l *kept) removeLocked(k *link) {
	if k.place != nil {
		l.links.Remove(k.place)
		k.place = nil
	}
}

// letGo ends the time for which an idle agent is listened to. Where it is not idle it will
// ask for a place again.
func (k *link) letGo() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.linger.IsZero() {
		return
	}
	k.linger = time.Now()
	if k.interrupt != nil && k.restsLocked() {
		k.interrupt()
	}
}
