// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/agentsession-dev/operator/internal/policy"
)

// machines simulate the filter of each mode.
var machines = func() (vms []*bpf.VM) {
	for _, m := range policy.Modes() {
		program, err := Filter(policy.Profile{Mode: m})
		if err != nil {
			panic(err)
		}
		vm, err := bpf.NewVM(program)
		if err != nil {
			panic(err)
		}
		vms = append(vms, vm)
	}
	return vms
}()

// run simulates the filter. The simulator loads big-endian words, the kernel native ones.
func run(t *testing.T, m policy.Mode, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	return runOn(t, machines[m], arch, number, args...)
}

func runOn(t *testing.T, vm *bpf.VM, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNumber:], number)
	binary.BigEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offArgs+8*i:], uint32(a)) // the low half lies first
		binary.BigEndian.PutUint32(data[offArgs+8*i+4:], uint32(a>>32))
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

func TestFilter(t *testing.T) {
	erofs, eperm := errno(unix.EROFS), errno(unix.EPERM)
	same := func(r uint32) [3]uint32 { return [3]uint32{r, r, r} }
	const high = 1 << 32
	for name, tc := range map[string]struct {
		number uint32
		args   []uint64
		want   [3]uint32
	}{
		"an ordinary call":                     {unix.SYS_READ, nil, same(retAllow)},
		"a call of tomorrow":                   {600, nil, same(retAllow)},
		"x32":                                  {x32Bit | unix.SYS_GETPID, nil, same(retKill)},
		"the number that tracers leave":        {0xffffffff, nil, same(retKill)},
		"chmod of a descriptor":                {unix.SYS_FCHMOD, nil, [3]uint32{erofs, retAllow, retAllow}},
		"file_setattr":                         {unix.SYS_FILE_SETATTR, nil, [3]uint32{erofs, retAllow, retAllow}},
		"inode flags":                          {unix.SYS_IOCTL, []uint64{3, 0x40086602}, [3]uint32{erofs, retAllow, retAllow}},
		"inode flags with high bits":           {unix.SYS_IOCTL, []uint64{3, high | 0x40086602}, [3]uint32{erofs, retAllow, retAllow}},
		"reading inode flags":                  {unix.SYS_IOCTL, []uint64{3, 0x80086601}, same(retAllow)},
		"the size of a terminal":               {unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, same(retAllow)},
		"bytes in a pipe":                      {unix.SYS_IOCTL, []uint64{0, unix.TIOCINQ}, same(retAllow)},
		"cloning a file's blocks":              {unix.SYS_IOCTL, []uint64{3, unix.FICLONE, 4}, [3]uint32{erofs, retAllow, retAllow}},
		"typing into a terminal":               {unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, same(eperm)},
		"typing into a terminal, high bits":    {unix.SYS_IOCTL, []uint64{0, high | unix.TIOCSTI}, same(eperm)},
		"pasting into a terminal":              {unix.SYS_IOCTL, []uint64{0, tiocLinux}, same(eperm)},
		"another line discipline":              {unix.SYS_IOCTL, []uint64{0, unix.TIOCSETD}, same(eperm)},
		"another line discipline, high bits":   {unix.SYS_IOCTL, []uint64{0, high | unix.TIOCSETD}, same(eperm)},
		"a terminal's settings":                {unix.SYS_IOCTL, []uint64{0, unix.TCSETS}, same(retAllow)},
		"a terminal's settings, newer":         {unix.SYS_IOCTL, []uint64{0, 0x402c542b}, same(retAllow)},
		"one's own limits":                     {unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CPU}, same(retAllow)},
		"the supervisor's limits":              {unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_CPU}, same(eperm)},
		"the supervisor's limits, high bits":   {unix.SYS_PRLIMIT64, []uint64{high | 1, unix.RLIMIT_CPU}, same(eperm)},
		"one's own affinity":                   {unix.SYS_SCHED_SETAFFINITY, []uint64{0}, same(retAllow)},
		"another's affinity":                   {unix.SYS_SCHED_SETAFFINITY, []uint64{7}, same(eperm)},
		"one's own priority":                   {unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 0}, same(retAllow)},
		"another's priority":                   {unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 1}, same(eperm)},
		"the user's priority":                  {unix.SYS_SETPRIORITY, []uint64{unix.PRIO_USER, 0}, same(eperm)},
		"the user's input and output priority": {unix.SYS_IOPRIO_SET, []uint64{ioprioWhoUser, 0}, same(eperm)},
		"an internet socket":                   {unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM}, same(eperm)},
		"an internet socket, high bits":        {unix.SYS_SOCKET, []uint64{high | unix.AF_INET, unix.SOCK_STREAM}, same(eperm)},
		"a unix socket":                        {unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, [3]uint32{eperm, retAllow, retAllow}},
		"a stream pair":                        {unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, same(retAllow)},
		"a packet pair":                        {unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, same(retAllow)},
		"a datagram pair":                      {unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_NONBLOCK}, [3]uint32{eperm, retAllow, retAllow}},
		"a pair of another family":             {unix.SYS_SOCKETPAIR, []uint64{30, unix.SOCK_STREAM}, same(eperm)},
		"fork":                                 {unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, same(retAllow)},
		"a thread":                             {unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, same(retAllow)},
		"fork into a user namespace":           {unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, same(eperm)},
		"clone3":                               {unix.SYS_CLONE3, nil, same(errno(unix.ENOSYS))},
		"io_uring":                             {unix.SYS_IO_URING_SETUP, nil, same(eperm)},
		"System V shared memory":               {unix.SYS_SHMGET, nil, [3]uint32{eperm, eperm, retAllow}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range policy.Modes() {
				if got := run(t, m, nativeArch, tc.number, tc.args...); got != tc.want[m] {
					t.Errorf("%s: %#x, want %#x", m, got, tc.want[m])
				}
			}
		})
	}
}

// Whatever the call is, entering by another ABI is the end: its numbers mean other calls.
func TestForeignArchitecturesAreKilled(t *testing.T) {
	for _, arch := range []uint32{0, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, nativeArch ^ 1} {
		for number := range uint32(500) {
			if got := run(t, policy.DangerFullAccess, arch, number); got != retKill {
				t.Fatalf("architecture %#x, call %d: %#x, want killed", arch, number, got)
			}
		}
	}
}

// A wider mode never refuses what a narrower one allows.
func TestWiderModesAllowMore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		number := rnd.Uint32N(480)
		args := []uint64{uint64(rnd.IntN(4)), uint64(rnd.IntN(6)), 0}
		narrow, middle, wide := run(t, 0, nativeArch, number, args...), run(t, 1, nativeArch, number, args...), run(t, 2, nativeArch, number, args...)
		if narrow == retAllow && middle != retAllow || middle == retAllow && wide != retAllow {
			t.Fatalf("call %d %v: %#x, %#x, %#x", number, args, narrow, middle, wide)
		}
	}
}

// Groups are an order of looking things up and nothing else: each system call is answered as its
// line in the table alone answers it.
func TestGroupsChangeNoAnswer(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, m := range policy.Modes() {
		alone := map[uint32]*bpf.VM{}
		for _, c := range table(policy.Profile{Mode: m}) {
			vm, err := bpf.NewVM(append([]bpf.Instruction{bpf.LoadAbsolute{Off: offNumber, Size: 4}}, c.body...))
			if err != nil {
				t.Fatal(err)
			}
			alone[c.number] = vm
		}
		for number := range uint32(600) {
			for range 40 {
				args := []uint64{uint64(rnd.IntN(44)), uint64(rnd.IntN(0x5500)), uint64(rnd.IntN(3))}
				want := retAllow
				if vm := alone[number]; vm != nil {
					want = runOn(t, vm, nativeArch, number, args...)
				}
				if got := run(t, m, nativeArch, number, args...); got != want {
					t.Fatalf("%s: call %d %v is answered by %#x, want %#x", m, number, args, got, want)
				}
			}
		}
	}
}

func TestFiltersThatCannotBeMade(t *testing.T) {
	for _, p := range []policy.Profile{{Mode: 3}, {Mode: 200}, {Network: 2}, {Network: 9}} {
		if _, err := Filter(p); err == nil {
			t.Errorf("there is a filter for %+v", p)
		}
		if _, err := Prepare(p, "/"); err == nil {
			t.Errorf("there is a domain for %+v", p)
		}
	}
}

func TestTheFilterFitsTheKernel(t *testing.T) {
	for _, m := range policy.Modes() {
		program, err := Filter(policy.Profile{Mode: m})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(program); n > 4096 {
			t.Errorf("%s: %d instructions", m, n)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	for b.Loop() {
		if _, err := Filter(policy.Profile{}); err != nil {
			b.Fatal(fmt.Errorf("making a filter: %w", err))
		}
	}
}

// An open network adds TCP and UDP, and nothing else.
func TestAnOpenNetwork(t *testing.T) {
	allowed := func(p policy.Profile) map[[3]uint32]bool {
		program, err := Filter(p)
		if err != nil {
			t.Fatal(err)
		}
		vm, err := bpf.NewVM(program)
		if err != nil {
			t.Fatal(err)
		}
		got := map[[3]uint32]bool{}
		for family := range uint32(64) {
			for _, kind := range []uint32{1, 2, 3, 4, 5, 6, 10, 11, 1 | unix.SOCK_CLOEXEC, 2 | unix.SOCK_NONBLOCK, 3 | unix.SOCK_CLOEXEC} {
				for _, protocol := range []uint32{0, 1, 2, 6, 17, 58, 132, 136, 255, unix.IPPROTO_MPTCP, 1 << 31} {
					data := make([]byte, 64)
					binary.BigEndian.PutUint32(data[offNumber:], unix.SYS_SOCKET)
					binary.BigEndian.PutUint32(data[offArch:], nativeArch)
					for i, a := range []uint32{family, kind, protocol} {
						binary.BigEndian.PutUint32(data[offArgs+8*i:], a)
					}
					if r, err := vm.Run(data); err != nil {
						t.Fatal(err)
					} else if uint32(r) == retAllow {
						got[[3]uint32{family, kind, protocol}] = true
					}
				}
			}
		}
		return got
	}
	for _, m := range policy.Modes() {
		none, open := allowed(policy.Profile{Mode: m}), allowed(policy.Profile{Mode: m, Network: policy.NetworkOpen})
		added := 0
		for s := range open {
			if none[s] {
				continue
			}
			added++
			inet, kind, protocol := s[0] == unix.AF_INET || s[0] == unix.AF_INET6, s[1]&0xf, s[2]
			if !inet || kind != unix.SOCK_STREAM && kind != unix.SOCK_DGRAM || protocol != 0 && protocol != 6 && protocol != 17 {
				t.Errorf("%s: socket %v is added", m, s)
			}
		}
		if want := 2 * 4 * 3; added != want {
			t.Errorf("%s: %d kinds of sockets are added, want %d", m, added, want)
		}
		for s := range none {
			if !open[s] {
				t.Errorf("%s: socket %v is allowed without a network alone", m, s)
			}
		}
	}
}
