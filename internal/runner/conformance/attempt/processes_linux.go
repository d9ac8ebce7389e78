// SPDX-License-Identifier: Apache-2.0

package attempt

import (
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

var processOperations = map[string]operation{
	"signal":       onProcess(func(pid int) error { return unix.Kill(pid, 0) }),
	"kill":         onProcess(func(pid int) error { return unix.Kill(pid, unix.SIGTERM) }),
	"kill-parents": plain(killAncestors),
	"pidfd-signal": onProcess(func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		return unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
	}),
	"pidfd-getfd": onProcess(func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		return closing(unix.PidfdGetfd(fd, 0, 0))
	}),
	"ptrace": onProcess(unix.PtraceSeize),
	"process-vm": onProcess(func(pid int) error {
		var b [1]byte
		local := []unix.Iovec{{Base: &b[0], Len: 1}}
		_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b[0])), Len: 1}}, 0)
		return err
	}),
	"memory":  onProcess(func(pid int) error { return closing(unix.Open(fmt.Sprintf("/proc/%d/mem", pid), unix.O_RDWR, 0)) }),
	"environ": onProcess(func(pid int) error { return closing(unix.Open(fmt.Sprintf("/proc/%d/environ", pid), unix.O_RDONLY, 0)) }),
	"descriptors": onProcess(func(pid int) error {
		return closing(unix.Open(fmt.Sprintf("/proc/%d/fd", pid), unix.O_RDONLY|unix.O_DIRECTORY, 0))
	}),
	"root":    onProcess(func(pid int) error { return closing(unix.Open(fmt.Sprintf("/proc/%d/root/", pid), unix.O_RDONLY, 0)) }),
	"oom":     onProcess(func(pid int) error { return writeNumber(fmt.Sprintf("/proc/%d/oom_score_adj", pid), "1000") }),
	"prlimit": onProcess(func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_CPU, &unix.Rlimit{}, nil) }),
	"prlimit-high-bits": onProcess(func(pid int) error {
		return raw(unix.SYS_PRLIMIT64, uintptr(pid)|1<<40, unix.RLIMIT_CPU, uintptr(unsafe.Pointer(&unix.Rlimit{})))
	}),
	"nice":      onProcess(func(pid int) error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 19) }),
	"nice-user": plain(func() error { return unix.Setpriority(unix.PRIO_USER, 0, 19) }),
	"nice-self": plain(func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 1) }),
	"affinity":  onProcess(func(pid int) error { return unix.SchedSetaffinity(pid, &unix.CPUSet{1}) }),
	"scheduler": onProcess(func(pid int) error {
		return raw(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), 5, uintptr(unsafe.Pointer(new(int32))))
	}),
	"parameters": onProcess(func(pid int) error {
		return raw(unix.SYS_SCHED_SETPARAM, uintptr(pid), uintptr(unsafe.Pointer(new(int32))))
	}),
	"attributes": onProcess(func(pid int) error {
		return unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: 5}, 0)
	}),
	"io-nice": onProcess(func(pid int) error { return raw(unix.SYS_IOPRIO_SET, 1, uintptr(pid), 3<<13) }),
	"io-nice-user": plain(func() error {
		return raw(unix.SYS_IOPRIO_SET, 3, 0, 3<<13)
	}),
}

func onProcess(do func(pid int) error) operation {
	return func(args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%w: one process is needed", errBroken)
		}
		pid, err := strconv.Atoi(args[0])
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		return do(pid)
	}
}

// killAncestors finds the process that watches over this call, which has another
// session than the call, and tries to kill it.
func killAncestors() error {
	own, err := unix.Getsid(0)
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	for pid := unix.Getppid(); pid > 1; {
		sid, err := unix.Getsid(pid)
		if err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
		if sid != own {
			return unix.Kill(pid, unix.SIGKILL)
		}
		if pid, err = parentOf(pid); err != nil {
			return fmt.Errorf("%w: %w", errBroken, err)
		}
	}
	return fmt.Errorf("%w: there is no process that watches over this one", errBroken)
}

func parentOf(pid int) (parent int, err error) {
	var b [512]byte
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/stat", pid), unix.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0, err
	}
	var name, state string
	_, err = fmt.Sscan(string(b[:n]), &pid, &name, &state, &parent)
	return parent, err
}

func writeNumber(path, number string) error {
	fd, err := unix.Open(path, unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(number))
	return err
}
