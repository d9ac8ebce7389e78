// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckHarmless refuses a place where a promise that is not kept would cost: what the
// rows try, they do where nothing keeps them from it.
func CheckHarmless() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	return checkHarmless(os.Geteuid(), string(status))
}

func checkHarmless(user int, status string) error {
	if user == 0 || !strings.Contains(status, "\nCapEff:\t0000000000000000\n") || !strings.Contains(status, "\nNoNewPrivs:\t1\n") {
		return errors.New("this process has privileges, or could get some: what the suite tries would change this machine. Run it as a user, " +
			"without capabilities and with no_new_privs, as in a tools container")
	}
	return nil
}

// Here fills in what can be seen from inside.
func (w Where) Here() Where {
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		w.Kernel = unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	w.User = os.Getuid()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return w
	}
	for line := range strings.Lines(string(status)) {
		switch f := strings.Fields(line); {
		case len(f) != 2:
		case f[0] == "NoNewPrivs:":
			w.NoNewPrivs = f[1] == "1"
		case f[0] == "Seccomp:":
			w.Seccomp = f[1] == "2"
		}
	}
	return w
}
