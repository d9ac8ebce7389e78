// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func enterIA32() uint32
TEXT ·enterIA32(SB), NOSPLIT, $0-4
	MOVL	$20, AX
	INT	$0x80
	MOVL	AX, ret+0(FP)
	RET
