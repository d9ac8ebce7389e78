// SPDX-License-Identifier: Apache-2.0

package attempt

// enterIA32 asks for the process's number by the 32-bit entry of the kernel.
func enterIA32() uint32

func foreignABI() error {
	enterIA32()
	return nil
}
