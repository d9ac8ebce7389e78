// SPDX-License-Identifier: Apache-2.0

package call

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

func init() { runtime.LockOSThread() }

// The test binary is its own init: the path of a call leads through the program that takes it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		os.Exit(Init())
	}
	if len(os.Args) > 1 && os.Args[1] == "tool" {
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "plain" {
		fmt.Fprintln(os.Stderr, ServePlain())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// ServePlain is set by the benchmark.
var ServePlain func() error

// One runs a call to its end.
func One(p *Pool, o Order) error {
	c, err := p.Launch(o)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Begin(); err != nil {
		return err
	}
	_, err = c.Wait()
	return err
}
