//go:build !portable

#include "textflag.h"

// func prefetch(p unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func prefetchRecord(p unsafe.Pointer)
TEXT ·prefetchRecord(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 48(AX)
	RET

// func prefetchOld(p, b unsafe.Pointer)
TEXT ·prefetchOld(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ b+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 48(AX)
	PREFETCHT0 (BX)
	RET
