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

// What was recorded from a real endpoint plays without it, and no key is in it.
func TestRecords(t *testing.T) {
	upstream, _ := start(t, t.Context(), "--listen", "127.0.0.1:0", "--script", write(t, "script.yaml", script),
		"--api-key-file", write(t, "key", "upstream-secret"))
	to := filepath.Join(t.TempDir(), "recorded.yaml")
	recorder, _ := start(t, t.Context(), "--listen", "127.0.0.1:0", "--record-from", "http://"+upstream+"/v1", "--record-to", to,
		"--upstream-key-file", write(t, "key", "upstream-secret\n"), "--api-key-file", write(t, "key", "own-secret"))
	status, recorded := chat(t, http.DefaultClient, "http://"+recorder, "own-secret", "hello")
	if status != 200 || !strings.Contains(recorded, "hi") {
		t.Fatalf("status %d: %s", status, recorded)
	}
	data, err := os.ReadFile(to)
	if err != nil || bytes.Contains(data, []byte("secret")) {
		t.Fatalf("%v: %s", err, data)
	}
	player, _ := start(t, t.Context(), "--listen", "127.0.0.1:0", "--script", to)
	if status, played := chat(t, http.DefaultClient, "http://"+player, "", "hello"); status != 200 || played != recorded {
		t.Errorf("status %d: played\n%s\nrecorded\n%s", status, played, recorded)
	}
	if status, answer := chat(t, http.DefaultClient, "http://"+player, "", "other"); status != 400 || !strings.Contains(answer, "no rule of the script matches") {
		t.Errorf("another conversation: status %d: %s", status, answer)
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
		"no script":             {nil, "--script is missing"},
		"script and recording":  {[]string{"--script", good, "--record-from", "http://127.0.0.1:1/v1", "--record-to", "x"}, "exclude each other"},
		"no target":             {[]string{"--record-from", "http://127.0.0.1:1/v1"}, "--record-from and --record-to belong together"},
		"an existing target":    {[]string{"--record-from", "http://127.0.0.1:1/v1", "--record-to", good}, "exists; record to another file"},
		"a target in nowhere":   {[]string{"--record-from", "http://127.0.0.1:1/v1", "--record-to", "/nowhere/x"}, "make it first"},
		"no URL to record":      {[]string{"--record-from", "api.example.com", "--record-to", "x"}, "write it like https://"},
		"a key in the URL":      {[]string{"--record-from", "https://me:word@api.example.com", "--record-to", "x"}, "keys belong into headers"},
		"an upstream key alone": {[]string{"--script", good, "--upstream-key-file", "x"}, "is for --record-from"},
		"a missing upstream key": {[]string{
			"--record-from", "http://127.0.0.1:1/v1", "--record-to", "x", "--upstream-key-file", "/nowhere/key",
		}, "reading the API key"},
		"a key that would leak": {[]string{
			"--record-from", "http://127.0.0.1:1/v1", "--record-to", "x", "--api-key-file", write(t, "key", "secret"),
		}, "would send this server's key to the real endpoint"},
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
