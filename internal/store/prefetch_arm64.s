//go:build !portable

#include "textflag.h"

// func prefetch(p unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func prefetchRecord(p unsafe.Pointer)
TEXT ·prefetchRecord(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	PRFM 48(R0), PLDL1KEEP
	RET

// func prefetchOld(p, b unsafe.Pointer)
TEXT ·prefetchOld(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD b+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM 48(R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
