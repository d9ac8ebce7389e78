// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// verdicts tell, by what git prints in the C locale, what somebody must do from what
// passes. The first that fits holds.
var verdicts = []struct {
	words []string
	later bool
	text  string
}{
	{[]string{"No space left on device", "Disk quota exceeded"}, false, "the volume is too small for it: create the session anew with a larger workspace.storage.size"},
	{[]string{"terminal prompts disabled", "could not read Username", "could not read Password"}, false, "the server asks for credentials: name a Secret that has them in workspace.source.git.credentialsSecretName of a new session"},
	{[]string{"Authentication failed", "returned error: 401", "returned error: 403"}, false, "the server refuses the credentials, or who they belong to: correct the Secret"},
	{[]string{"returned error: 404", "not found"}, false, "there is no such repository, or none that the credentials may see"},
	{[]string{"certificate", "SSL"}, false, "the server's certificate cannot be verified: the tools image must know its authority (GIT_SSL_CAINFO)"},
	{[]string{"transport '"}, false, "the server leads to another protocol, which is not followed"},
	{[]string{"fsck", "index-pack", "invalid path", "bad object"}, false, "the repository holds objects that git refuses"},
	{[]string{"Could not resolve", "Failed to connect", "Couldn't connect", "timed out", "Operation too slow", "early EOF", "hung up unexpectedly", "RPC failed", "Connection reset", "returned error: 429", "returned error: 5"}, true, "the server does not answer as it should"},
}

// judge finds the words for a command that failed.
func judge(command, stderr string, err error) error {
	said := quote(stderr)
	if said == "" {
		said = err.Error()
	}
	for _, v := range verdicts {
		if slices.ContainsFunc(v.words, func(w string) bool { return strings.Contains(stderr, w) }) {
			return &Trouble{v.later, v.text + " (git " + command + ": " + said + ")"}
		}
	}
	return act("git %s: %s", command, said)
}

// changing is what two failures for the same cause would tell in different words.
var changing = regexp.MustCompile(` after [0-9]+ ms| in [0-9.]+ seconds`)

// quote returns the lines that say why, as one, in words that stay the same.
func quote(stderr string) string {
	var lines []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, '\r'); i >= 0 {
			line = line[i+1:]
		}
		for _, prefix := range []string{"fatal: ", "error: ", "remote: "} {
			if text, ok := strings.CutPrefix(line, prefix); ok && text != "" {
				lines = append(lines, text)
			}
		}
	}
	text := changing.ReplaceAllString(strings.Join(lines, "; "), "")
	if len(text) > 800 {
		text = strings.ToValidUTF8(text[:800], "") + "…"
	}
	return text
}

const dialPatience = 20 * time.Second

// reach finds out whether the server can be reached at all: a policy that drops packets
// would let git wait for minutes and say little.
func (g *Git) reach(ctx context.Context) error {
	for _, name := range inherited {
		if strings.HasSuffix(strings.ToLower(name), "_proxy") && os.Getenv(name) != "" {
			return nil // it is for the proxy to reach it
		}
	}
	u, err := url.Parse(g.URL)
	if err != nil {
		return act("%.200q is no URL", g.URL)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	address := net.JoinHostPort(u.Hostname(), port)
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		return c.Close()
	}
	return later("%s is not reached: %s. Is it up, and may the session's pod reach it (NetworkPolicy)?", address, networkWords(err))
}

// networkWords say what is wrong without addresses and ports that change.
func networkWords(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "there is no such host"
		}
		return "the name server does not answer"
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno.Error()
	}
	return "no answer within " + dialPatience.String()
}
