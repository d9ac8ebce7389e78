// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const script = `
version: 1
rules:
- {when: {lastUser: slow}, delay: 10m, reply: {text: too late}}
- {when: {}, reply: {text: hi}}
`

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate writes a self-signed certificate for 127.0.0.1 and returns a client that trusts it.
func certificate(t *testing.T) (certFile, keyFile string, client *http.Client) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return write(t, "tls.crt", string(certPEM)), write(t, "tls.key", string(keyPEM)), &http.Client{Transport: transport}
}

// start runs the program and returns its address once it says so, and its end.
func start(t *testing.T, ctx context.Context, args ...string) (address string, ended <-chan error) {
	t.Helper()
	logs, stderr := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, args, stderr)
		stderr.CloseWithError(io.EOF)
		done <- err
	}()
	lines := bufio.NewScanner(logs)
	for lines.Scan() {
		var line struct{ Msg, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("the log is not JSON: %s", lines.Bytes())
		}
		if line.Msg == "Listening" {
			go func() { _, _ = io.Copy(io.Discard, logs) }()
			return line.Address, done
		}
	}
	t.Fatalf("the program ended: %v", <-done)
	return "", nil
}

func chat(t *testing.T, c *http.Client, url, key, text string) (int, string) {
	t.Helper()
	body := `{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// The program serves HTTPS with a key, and its end is orderly: a reply that
// waits in its delay becomes a clear 503, and run returns without an error.
func TestServesAndStops(t *testing.T) {
	certFile, keyFile, c := certificate(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address, ended := start(t, ctx, "--listen", "127.0.0.1:0", "--script", write(t, "script.yaml", script),
		"--tls-cert", certFile, "--tls-key", keyFile, "--api-key-file", write(t, "key", "secret\n"))
	url := "https://" + address

	if status, answer := chat(t, c, url, "secret", "hello"); status != 200 || !strings.Contains(answer, "hi") {
		t.Errorf("status %d: %s", status, answer)
	}
	if status, answer := chat(t, c, url, "guess", "hello"); status != 401 {
		t.Errorf("wrong key: status %d: %s", status, answer)
	}

	stopWhenListed(t, c, url, stop)
	if status, answer := chat(t, c, url, "secret", "slow"); status != 503 || !strings.Contains(answer, "send the request again") {
		t.Errorf("delayed reply at the end: status %d: %s", status, answer)
	}
	if err := <-ended; err != nil {
		t.Errorf("run() = %v, want nil", err)
	}
}

// stopWhenListed ends the program as soon as its second request, the slow one, is on record.
func stopWhenListed(t *testing.T, c *http.Client, url string, stop func()) {
	go func() {
		defer stop()
		for t.Context().Err() == nil {
			resp, err := c.Get(url + "/requests")
			if err != nil {
				return
			}
			var records []json.RawMessage
			err = json.NewDecoder(resp.Body).Decode(&records)
			resp.Body.Close()
			if err != nil || len(records) == 2 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
}

// Every way to start it wrongly ends with what to do.
func TestBadStarts(t *testing.T) {
	good := write(t, "script.yaml", script)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no script":          {nil, "--script is missing"},
		"an argument":        {[]string{"play.yaml"}, `unexpected argument "play.yaml"`},
		"an unknown flag":    {[]string{"--port", "1"}, "not defined: -port"},
		"a missing script":   {[]string{"--script", "/nowhere/play.yaml"}, "reading the script: open /nowhere/play.yaml"},
		"a bad script":       {[]string{"--script", write(t, "bad.yaml", "version: 1\nrules: [{}]")}, "bad.yaml: rule 1: no when"},
		"half of TLS":        {[]string{"--script", good, "--tls-cert", "x"}, "give both or neither"},
		"TLS without a file": {[]string{"--script", good, "--tls-cert", "/nowhere/c", "--tls-key", "/nowhere/k"}, "loading --tls-cert and --tls-key"},
		"an empty key":       {[]string{"--script", good, "--api-key-file", write(t, "key", "\n")}, "is empty; write the key into it"},
		"a missing key":      {[]string{"--script", good, "--api-key-file", "/nowhere/key"}, "reading the API key"},
		"a taken port":       {[]string{"--script", good, "--listen", taken.Addr().String()}, "choose another address with --listen"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tc.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("run() = %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

// The program stays what its package text says: no agent, no cluster, no provider's client.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const self = "github.com/agentsession-dev/operator/"
	allowed := []string{self + "cmd/replay-model", self + "internal/replaymodel", self + "internal/policy", "sigs.k8s.io/yaml", "go.yaml.in/yaml/"}
	for line := range bytes.Lines(out) {
		path := strings.TrimSpace(string(line))
		ok := path == ""
		for _, a := range allowed {
			ok = ok || strings.HasPrefix(path, a)
		}
		if !ok {
			t.Errorf("depends on %s", path)
		}
	}
}
