// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func vfork(flags uintptr, pidfd *int32) (pid, errno uintptr)
//
// Child and parent use the same stack, one after the other. What the child calls
// overwrites the return address of this call: it is kept in a register meanwhile.
TEXT ·vfork(SB),NOSPLIT|NOFRAME,$0-32
	MOVQ flags+0(FP), DI
	MOVQ pidfd+8(FP), DX
	XORL SI, SI
	XORL R10, R10
	XORL R8, R8
	MOVL $56, AX // clone
	POPQ R12
	SYSCALL
	PUSHQ R12
	CMPQ AX, $0xfffffffffffff001
	JLS ok
	NEGQ AX
	MOVQ $0, pid+16(FP)
	MOVQ AX, errno+24(FP)
	RET
ok:
	MOVQ AX, pid+16(FP)
	MOVQ $0, errno+24(FP)
	RET
