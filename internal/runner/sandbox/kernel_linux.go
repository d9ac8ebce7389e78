// SPDX-License-Identifier: Apache-2.0

package sandbox

import ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

// Support is what the kernel says it has.
type Support struct {
	ABI           int   // of Landlock; 0 where there is none
	Errata        int   // corrections of Landlock that are in, as a bit mask
	LandlockError error // why ABI is 0: ENOSYS, EOPNOTSUPP, or EPERM from an old runtime's seccomp profile
	Seccomp       bool
}

// landlockABI is the version of Landlock that calls are confined with; 0 with an error.
func landlockABI() (int, error) {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0, err
	}
	return min(abi, mostABI()), nil
}

// Scoped reports whether calls are in signal domains of their own here, by which each
// can be ended alone.
func Scoped() bool {
	abi, err := landlockABI()
	return err == nil && abi >= MinimumABI
}

// Kernel asks the kernel. What it says is not yet what holds: Test is.
func Kernel() Support {
	s := Support{Seccomp: HasSeccomp()}
	if s.ABI, s.LandlockError = landlockABI(); s.LandlockError != nil {
		return s
	}
	if errata, err := ll.LandlockGetErrata(); err == nil {
		s.Errata = errata
	}
	return s
}
