//go:build !portable

#include "textflag.h"

// func prefetchWrite(p unsafe.Pointer)
TEXT ·prefetchWrite(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	// PREFETCHW (AX) and PREFETCHW 64(AX), which the assembler has no names
	// for. Processors without the instruction take it for a no-op.
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08
	BYTE $0x0f; BYTE $0x0d; BYTE $0x48; BYTE $0x40
	RET
