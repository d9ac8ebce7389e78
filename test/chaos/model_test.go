// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// asked is one request as the model remembers it.
type asked struct {
	N, Status                int
	Complete                 bool
	BodyDigest, Conversation string
}

// ledger is what the model was asked. It remembers the newest requests only, so they are fetched
// from it all the time, from its pod itself: the apiserver goes away now and then.
type ledger struct {
	mu       sync.Mutex
	requests map[int]asked // by their number
}

// keepLedger fetches until ctx ends; the returned function waits for that.
func keepLedger(ctx context.Context, t *testing.T) (l *ledger, wait func()) {
	t.Helper()
	ip, err := kube.Kubectl(ctx, "-n", namespace, "get", "pods", "-l", "app=replay-model", "--field-selector=status.phase=Running", "-o", "jsonpath={.items[0].status.podIP}")
	if err != nil {
		t.Fatal(err)
	}
	l = &ledger{requests: map[int]asked{}}
	var loop sync.WaitGroup
	loop.Go(func() {
		for ctx.Err() == nil {
			if err := l.fetch(ip); err != nil {
				t.Errorf("the model's account: %v", err)
				return
			}
			sleep(ctx, 5*time.Second)
		}
		if err := l.fetch(ip); err != nil {
			t.Errorf("the model's account: %v", err)
		}
	})
	return l, loop.Wait
}

func (l *ledger) fetch(ip string) error {
	answer, err := (&http.Client{Timeout: 30 * time.Second}).Get("http://" + ip + ":8080/requests")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var list []asked
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range list {
		if before, known := l.requests[r.N]; known && before.BodyDigest != r.BodyDigest {
			return fmt.Errorf("request %d is another one than before: the model started anew", r.N)
		}
		l.requests[r.N] = r
	}
	if len(list) > 0 && len(l.requests) != list[len(list)-1].N {
		return fmt.Errorf("of %d requests %d are known: the model forgets faster than it is asked", list[len(list)-1].N, len(l.requests))
	}
	return nil
}

// check compares with the logs: of no conversation the model was asked what the log has not, and
// every answer in a log is one that the model gave to that request. Of a few conversations the
// log is gone, and with it all of them.
func (l *ledger) check(t *testing.T, accounts []*account, gone int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	owner := map[string]*account{}
	for _, a := range accounts {
		for digest := range a.sent {
			owner[digest] = a
		}
	}
	given := map[string]bool{}
	of, unknown := map[string]*account{}, map[string]int{}
	for _, r := range l.requests {
		digest := strings.TrimPrefix(r.BodyDigest, "sha256:")
		given[digest] = given[digest] || r.Status == http.StatusOK
		switch a := owner[digest]; {
		case a == nil:
			unknown[r.Conversation]++
		case of[r.Conversation] != nil && of[r.Conversation] != a:
			t.Errorf("request %d of %s belongs to the conversation of %s", r.N, a.name, of[r.Conversation].name)
		default:
			of[r.Conversation] = a
		}
	}
	for c, n := range unknown {
		if a := of[c]; a != nil {
			t.Errorf("%s: the model was asked %d times what its log has not", a.name, n)
		}
	}
	for _, a := range accounts {
		for digest := range a.answeredRequests {
			if !given[digest] {
				t.Errorf("%s: the log has an answer to a request that the model never answered", a.name)
			}
		}
	}
	t.Logf("the model was asked %d times in %d conversations; of %d the log is gone", len(l.requests), len(of)+len(unknown), len(unknown))
	if len(of) != len(accounts) || len(unknown) > gone {
		t.Errorf("%d conversations are in %d logs, and %d are in none, want %d at most", len(of), len(accounts), len(unknown), gone)
	}
}
