// SPDX-License-Identifier: Apache-2.0

// Command replay-model serves a scripted conversation as an OpenAI-compatible or
// Anthropic-compatible model and accounts for prefix-cache hits, or it records a
// real one. It only wires: flags, TLS, log and an orderly end; package
// replaymodel decides what is said.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/agentsession-dev/operator/internal/replaymodel"
)

// shutdownGrace is how long replies under way may take to end after SIGTERM.
const shutdownGrace = 5 * time.Second

type config struct {
	listen, script, tlsCert, tlsKey, apiKeyFile string
	recordFrom, recordTo, upstreamKeyFile       string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "replay-model:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	options := []replaymodel.Option{replaymodel.WithLogger(log)}
	if c.apiKeyFile != "" {
		key, err := readKey(c.apiKeyFile)
		if err != nil {
			return err
		}
		options = append(options, replaymodel.WithAPIKey(key))
	}
	script, err := source(c, log, &options)
	if err != nil {
		return err
	}
	listener, err := listen(c)
	if err != nil {
		return err
	}
	log.Info("Listening", "address", listener.Addr().String(), "script", c.script, "recordTo", c.recordTo, "tls", c.tlsCert != "", "apiKey", c.apiKeyFile != "")
	return serve(ctx, listener, replaymodel.New(script, options...), log)
}

// source is the script to play, or nil with the option to record in its place.
func source(c config, log *slog.Logger, options *[]replaymodel.Option) (*replaymodel.Script, error) {
	if c.recordFrom == "" {
		return replaymodel.Load(c.script)
	}
	var key func() (string, error)
	if c.upstreamKeyFile != "" {
		key = func() (string, error) { return readKey(c.upstreamKeyFile) }
		if _, err := key(); err != nil {
			return nil, err
		}
	}
	recorder, err := replaymodel.NewRecorder(c.recordFrom, c.recordTo, key, log)
	if err != nil {
		return nil, err
	}
	*options = append(*options, replaymodel.WithRecorder(recorder))
	return nil, nil
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("replay-model", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8080", "`address` to serve on")
	flags.StringVar(&c.script, "script", "", "script `file` (YAML) to play")
	flags.StringVar(&c.tlsCert, "tls-cert", "", "certificate `file` (PEM); with --tls-key, serves HTTPS")
	flags.StringVar(&c.tlsKey, "tls-key", "", "private key `file` (PEM)")
	flags.StringVar(&c.apiKeyFile, "api-key-file", "", "`file` with the API key that clients must send")
	flags.StringVar(&c.recordFrom, "record-from", "", "base `URL` of a real endpoint to pass requests to, in place of a script")
	flags.StringVar(&c.recordTo, "record-to", "", "new `file`, or directory, that gets the recorded script")
	flags.StringVar(&c.upstreamKeyFile, "upstream-key-file", "", "`file` with the real endpoint's API key, read at each request; without it clients' keys are passed on")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	switch {
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; there are flags only, see --help", flags.Arg(0))
	case c.script == "" && c.recordFrom == "":
		return c, errors.New("--script is missing; name the script file to play, or record one with --record-from")
	case c.script != "" && c.recordFrom != "":
		return c, errors.New("--script and --record-from exclude each other; keep one")
	case (c.recordFrom == "") != (c.recordTo == ""):
		return c, errors.New("--record-from and --record-to belong together; give both or neither")
	case c.upstreamKeyFile != "" && c.recordFrom == "":
		return c, errors.New("--upstream-key-file is for --record-from; leave it out")
	case c.apiKeyFile != "" && c.recordFrom != "" && c.upstreamKeyFile == "":
		return c, errors.New("--api-key-file would send this server's key to the real endpoint; give --upstream-key-file too")
	case (c.tlsCert == "") != (c.tlsKey == ""):
		return c, errors.New("--tls-cert and --tls-key belong together; give both or neither")
	}
	return c, nil
}

func readKey(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the API key: %w", err)
	}
	key := strings.TrimSpace(string(data))
	if key == "" {
		return "", fmt.Errorf("the API key file %s is empty; write the key into it, or leave the flag out", path)
	}
	return key, nil
}

func listen(c config) (net.Listener, error) {
	var certificates []tls.Certificate
	if c.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(c.tlsCert, c.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("loading --tls-cert and --tls-key: %w", err)
		}
		certificates = append(certificates, pair)
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address with --listen", err)
	}
	if certificates != nil {
		listener = tls.NewListener(listener, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
	}
	return listener, nil
}

// serve, when it is to stop, ends the replies that wait in a delay at once and
// gives the others the grace period. There is no write time-out: a delayed reply is no error.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer endRequests()
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	log.Info("Shutting down")
	endRequests()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return errors.Join(fmt.Errorf("ending open requests: %w", err), server.Close())
	}
	return nil
}
