// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// image is one of the project's images: what is in it and how it starts.
type image struct {
	name     string
	title    string
	programs []string // directories under cmd/; each becomes /NAME in the image
	base     base
	config   v1.Config
}

// base is what an image holds beside the project's own programs.
type base uint8

const (
	bare     base = iota // accounts only
	withCAs              // and certificate authorities
	withDeb              // a Debian user land for the session's commands
	nonroot  = "65532:65532"
	pathList = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// tools are the Debian packages of the tools image: what a model's commands use, and what the checks of the sandbox's promises try
// (attr, acl, e2fsprogs, util-linux, procps).
var tools = []string{
	"acl", "attr", "base-files", "bash", "ca-certificates", "coreutils", "curl", "dash", "debianutils", "diffutils", "e2fsprogs",
	"findutils", "git", "grep", "gzip", "libc-bin", "make", "mawk", "ncurses-bin", "patch", "procps", "python3", "ripgrep", "sed", "tar",
	"util-linux", "xz-utils",
}

var catalogue = []image{
	{
		name: "manager", title: "AgentSession operator", programs: []string{"manager"}, base: withCAs,
		config: v1.Config{Entrypoint: []string{"/usr/local/bin/manager"}, User: nonroot, WorkingDir: "/"},
	},
	{
		name: "agent", title: "AgentSession in-pod agent and toolbox", programs: []string{"agent", "toolbox"}, base: withCAs,
		config: v1.Config{Entrypoint: []string{"/usr/local/bin/agent"}, User: nonroot, WorkingDir: "/"},
	},
	{
		name: "replay-model", title: "AgentSession replaying model server", programs: []string{"replay-model"}, base: bare,
		config: v1.Config{Entrypoint: []string{"/usr/local/bin/replay-model"}, User: nonroot, WorkingDir: "/"},
	},
	{
		name: "tools", title: "AgentSession default tools", base: withDeb,
		config: v1.Config{Cmd: []string{"bash"}, User: nonroot, WorkingDir: "/workspace", Env: []string{pathList, "LANG=C.UTF-8"}},
	},
}

func names() []string {
	var all []string
	for _, i := range catalogue {
		all = append(all, i.name)
	}
	return all
}

// selectImages reads the flag --only.
func selectImages(only string) ([]image, error) {
	if only == "" {
		return catalogue, nil
	}
	var selected []image
	for name := range strings.SplitSeq(only, ",") {
		at := slices.IndexFunc(catalogue, func(i image) bool { return i.name == strings.TrimSpace(name) })
		if at < 0 {
			return nil, fmt.Errorf("there is no image %q: --only takes %s", name, strings.Join(names(), ", "))
		}
		selected = append(selected, catalogue[at])
	}
	return selected, nil
}
