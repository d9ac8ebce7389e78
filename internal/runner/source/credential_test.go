// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/agentsession-dev/operator/internal/wire"
)

func basic(user, password string) func(http.Handler) http.Handler {
	return func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			git.ServeHTTP(w, r)
		})
	}
}

func (v *volumes) keys(user, password string) {
	v.t.Helper()
	if err := os.WriteFile(v.path("keys", "password"), []byte(password), 0o644); err != nil {
		v.t.Fatal(err)
	}
	if user != "" {
		if err := os.WriteFile(v.path("keys", "username"), []byte(user), 0o644); err != nil {
			v.t.Fatal(err)
		}
	}
}

const secret = "s3cret-of-the-repository"

func TestCredentialsOpenTheRepositoryAndAreLeftNowhere(t *testing.T) {
	s := serve(t, true, basic("robot", secret))
	s.repository(t, map[string]string{"README": "one"})
	v := newVolumes(t)
	v.trust(s)
	v.keys("robot", secret+"\n")
	v.fetched("--git", s.URL+"/project.git", "--credentials", "robot-key")
	if v.file("README") != "one" {
		t.Error("the repository is not there")
	}
	for _, dir := range []string{v.workspace, v.path("state")} {
		if all := everything(t, dir); strings.Contains(all, secret) || strings.Contains(all, "robot") || strings.Contains(all, "credential") {
			t.Errorf("something of the credentials is below %s", dir)
		}
	}
	if config := v.file(".git", "config"); !strings.Contains(config, "url = "+s.URL+"/project.git\n") {
		t.Errorf("the remote is not as asked for:\n%s", config)
	}
}

func TestCredentialsThatAreMissingOrWrongSaySo(t *testing.T) {
	s := serve(t, true, basic("git", secret))
	s.repository(t, map[string]string{"README": "one"})
	v := newVolumes(t)
	v.trust(s)
	v.refuses(wire.SourceFailed, "the server asks for credentials", "--git", s.URL+"/project.git")
	v.refuses(wire.SourceFailed, "the Secret key does not exist in the session's namespace, or has no key password", "--git", s.URL+"/project.git", "--credentials", "key")
	v.keys("", "two\nlines")
	v.refuses(wire.SourceFailed, "the key password of the Secret key cannot be used", "--git", s.URL+"/project.git", "--credentials", "key")
	v.keys("", "wrong")
	v.refuses(wire.SourceFailed, "the server refuses the credentials", "--git", s.URL+"/project.git", "--credentials", "key")
	v.keys("", secret)
	v.fetched("--git", s.URL+"/project.git", "--credentials", "key")
}

// A server that leads elsewhere gets its visitor, and neither of both what was meant for
// the first.
func TestCredentialsAreForTheirOwnServerAlone(t *testing.T) {
	thief := serve(t, true, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
		})
	})
	s := serve(t, true, func(http.Handler) http.Handler {
		return http.RedirectHandler(thief.URL+"/project.git/info/refs?service=git-upload-pack", http.StatusFound)
	})
	v := newVolumes(t)
	v.trust(s) // both have httptest's certificate
	v.keys("robot", secret)
	v.refuses(wire.SourceFailed, "", "--git", s.URL+"/project.git", "--credentials", "key")
	if len(thief.heard()) == 0 {
		t.Fatal("the redirect was not followed: this proves nothing")
	}
	for _, r := range thief.heard() {
		if r.Header.Get("Authorization") != "" {
			t.Error("another server was shown the credentials")
		}
	}
}

func TestCredentialsAreNotSentInTheClear(t *testing.T) {
	s := serve(t, false, basic("git", secret))
	s.repository(t, map[string]string{"README": "one"})
	v := newVolumes(t)
	v.keys("", secret)
	v.refuses(wire.SourceFailed, "https alone", "--git", s.URL+"/project.git", "--credentials", "key")
	if n := len(s.heard()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
	// Nor after a redirect from https.
	secure := serve(t, true, func(http.Handler) http.Handler {
		return http.RedirectHandler(s.URL+"/project.git/info/refs?service=git-upload-pack", http.StatusFound)
	})
	v = newVolumes(t)
	v.trust(secure)
	v.keys("", secret)
	v.refuses(wire.SourceFailed, "", "--git", secure.URL+"/project.git", "--credentials", "key")
	if n := len(s.heard()); n != 0 {
		t.Errorf("%d requests were made over http", n)
	}
}
