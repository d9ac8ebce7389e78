// SPDX-License-Identifier: Apache-2.0

// Command nodeimage puts images into the node's containerd: archives from
// files, and the pause image from the pause program. It knows containerd's
// socket and nothing of the cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

func main() {
	socket := flag.String("socket", "", "containerd's socket")
	snapshotter := flag.String("snapshotter", "overlayfs", "snapshotter that unpacks the images")
	pauseProgram := flag.String("pause", "", "program to import as the image --pause-image")
	pauseImage := flag.String("pause-image", "", "name of the image that --pause makes")
	wait := flag.Duration("wait", 30*time.Second, "how long to wait for containerd to answer")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *socket, *snapshotter, *pauseProgram, *pauseImage, *wait, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, socket, snapshotter, pauseProgram, pauseImage string, wait time.Duration, files []string) error {
	client, err := connect(ctx, socket, wait)
	if err != nil {
		return fmt.Errorf("connecting to containerd at %s: %w", socket, err)
	}
	defer client.Close()
	node := node{client: client, snapshotter: snapshotter}

	if pauseProgram != "" {
		archive, err := pauseArchive(pauseProgram, pauseImage)
		if err != nil {
			return fmt.Errorf("making the image %s: %w", pauseImage, err)
		}
		if err := node.load(ctx, archive); err != nil {
			return fmt.Errorf("importing the image %s: %w", pauseImage, err)
		}
	}
	for _, file := range files {
		if err := node.loadFile(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

// connect tries until containerd answers: its socket may not be there yet, or be
// that of one that was killed.
func connect(ctx context.Context, socket string, wait time.Duration) (*containerd.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		client, err := containerd.New(socket, containerd.WithDefaultNamespace("k8s.io"), containerd.WithTimeout(wait))
		if err == nil {
			if _, err = client.Version(ctx); err == nil {
				return client, nil
			}
			client.Close()
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}
