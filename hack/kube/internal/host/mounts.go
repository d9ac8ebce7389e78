// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unmountUnder detaches everything mounted below dir, innermost first. Mounts can
// lie over one another, so it looks again until none is left.
func unmountUnder(dir string) error {
	for range 10 {
		info, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		points := mountPointsUnder(string(info), dir)
		if len(points) == 0 {
			return nil
		}
		for _, p := range points {
			if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL && err != unix.ENOENT {
				return fmt.Errorf("unmounting %s: %w", p, err)
			}
		}
	}
	return fmt.Errorf("something mounts below %s as fast as it is unmounted", dir)
}

// mountPointsUnder lists the mount points below dir, the last mounted first.
func mountPointsUnder(mountinfo, dir string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if p := unescape(fields[4]); strings.HasPrefix(p, dir+"/") {
			points = append([]string{p}, points...)
		}
	}
	return points
}

// unescape undoes the octal escapes of /proc/PID/mountinfo, proc(5).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
