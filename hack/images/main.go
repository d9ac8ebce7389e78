// SPDX-License-Identifier: Apache-2.0

// Command images builds the project's container images without Docker, as tarballs, and pushes such tarballs to a registry.
//
//	go run . build --out DIR --tag TAG [--repo agentsession.dev] [--only name,...]
//	go run . push  --dir DIR --repo HOST/PATH [--only name,...] [--insecure]
//
// It decides what is in each image. It knows no cluster: the tarballs are for `docker load`, for containerd's import, or for push.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage:
  images build --out DIR --tag TAG [--repo agentsession.dev] [--only NAME,...] [--root DIR]
  images push  --dir DIR --repo HOST/PATH [--only NAME,...] [--insecure]
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "images:", err)
		}
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, log io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(log, usage)
		return errors.New("say what to do: build or push")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(log)
	flags.Usage = func() { fmt.Fprint(log, usage); flags.PrintDefaults() }
	only := flags.String("only", "", "comma-separated `names` of images; all when empty: "+strings.Join(names(), ", "))

	switch args[0] {
	case "build":
		b := builder{log: log}
		flags.StringVar(&b.out, "out", "", "`directory` for the tarballs")
		flags.StringVar(&b.tag, "tag", "", "`tag` of the images; never latest, which a kubelet pulls anew each time")
		flags.StringVar(&b.repo, "repo", "agentsession.dev", "first part of the image names")
		flags.StringVar(&b.root, "root", "", "the repository's `root`; found from the working directory when empty")
		if err := parse(flags, args[1:]); err != nil {
			return err
		}
		selected, err := selectImages(*only)
		if err != nil {
			return err
		}
		return b.build(ctx, selected)
	case "push":
		p := pusher{log: log}
		flags.StringVar(&p.dir, "dir", "", "`directory` with the tarballs")
		flags.StringVar(&p.repo, "repo", "", "registry and path, such as registry.example.com/team")
		flags.BoolVar(&p.insecure, "insecure", false, "allow a registry without TLS")
		if err := parse(flags, args[1:]); err != nil {
			return err
		}
		selected, err := selectImages(*only)
		if err != nil {
			return err
		}
		return p.push(ctx, selected, *only != "")
	case "help", "-h", "--help":
		fmt.Fprint(log, usage)
		return nil
	default:
		fmt.Fprint(log, usage)
		return fmt.Errorf("unknown command %q: say build or push", args[0])
	}
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}
