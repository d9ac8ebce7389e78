// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func vfork(flags uintptr, pidfd *int32) (pid, errno uintptr)
//
// Child and parent use the same stack, one after the other. The return address of
// this call is in a register, where the child cannot overwrite the parent's.
TEXT ·vfork(SB),NOSPLIT|NOFRAME,$0-32
	MOVD flags+0(FP), R0
	MOVD ZR, R1
	MOVD pidfd+8(FP), R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $220, R8 // clone
	SVC
	CMN $4095, R0
	BCC ok
	NEG R0, R0
	MOVD ZR, pid+16(FP)
	MOVD R0, errno+24(FP)
	RET
ok:
	MOVD R0, pid+16(FP)
	MOVD ZR, errno+24(FP)
	RET
