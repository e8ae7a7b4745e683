//go:build !portable

#include "textflag.h"

DATA ·mask26<>+0(SB)/8, $0x3ffffff
GLOBL ·mask26<>(SB), RODATA|NOPTR, $8
DATA ·bit24<>+0(SB)/8, $0x1000000
GLOBL ·bit24<>(SB), RODATA|NOPTR, $8

// CARRY moves what is above 26 bits of one limb to the next.
#define CARRY(from, to, tmp) \
	VPSRLQ $26, from, tmp;  \
	VPAND  Y14, from, from; \
	VPADDQ tmp, to, to

// MULTIPLY is the product of the limbs Y0 to Y4 with those of the table at SI, in Y5
// to Y9, reduced to little more than 26 bits each.
#define MULTIPLY \
	VPMULUDQ 0(SI), Y0, Y5;    \
	VPMULUDQ 32(SI), Y0, Y6;   \
	VPMULUDQ 64(SI), Y0, Y7;   \
	VPMULUDQ 96(SI), Y0, Y8;   \
	VPMULUDQ 128(SI), Y0, Y9;  \
	VPMULUDQ 256(SI), Y1, Y10; \
	VPADDQ Y10, Y5, Y5;        \
	VPMULUDQ 0(SI), Y1, Y11;   \
	VPADDQ Y11, Y6, Y6;        \
	VPMULUDQ 32(SI), Y1, Y12;  \
	VPADDQ Y12, Y7, Y7;        \
	VPMULUDQ 64(SI), Y1, Y13;  \
	VPADDQ Y13, Y8, Y8;        \
	VPMULUDQ 96(SI), Y1, Y10;  \
	VPADDQ Y10, Y9, Y9;        \
	VPMULUDQ 224(SI), Y2, Y10; \
	VPADDQ Y10, Y5, Y5;        \
	VPMULUDQ 256(SI), Y2, Y11; \
	VPADDQ Y11, Y6, Y6;        \
	VPMULUDQ 0(SI), Y2, Y12;   \
	VPADDQ Y12, Y7, Y7;        \
	VPMULUDQ 32(SI), Y2, Y13;  \
	VPADDQ Y13, Y8, Y8;        \
	VPMULUDQ 64(SI), Y2, Y10;  \
	VPADDQ Y10, Y9, Y9;        \
	VPMULUDQ 192(SI), Y3, Y10; \
	VPADDQ Y10, Y5, Y5;        \
	VPMULUDQ 224(SI), Y3, Y11; \
	VPADDQ Y11, Y6, Y6;        \
	VPMULUDQ 256(SI), Y3, Y12; \
	VPADDQ Y12, Y7, Y7;        \
	VPMULUDQ 0(SI), Y3, Y13;   \
	VPADDQ Y13, Y8, Y8;        \
	VPMULUDQ 32(SI), Y3, Y10;  \
	VPADDQ Y10, Y9, Y9;        \
	VPMULUDQ 160(SI), Y4, Y10; \
	VPADDQ Y10, Y5, Y5;        \
	VPMULUDQ 192(SI), Y4, Y11; \
	VPADDQ Y11, Y6, Y6;        \
	VPMULUDQ 224(SI), Y4, Y12; \
	VPADDQ Y12, Y7, Y7;        \
	VPMULUDQ 256(SI), Y4, Y13; \
	VPADDQ Y13, Y8, Y8;        \
	VPMULUDQ 0(SI), Y4, Y10;   \
	VPADDQ Y10, Y9, Y9;        \
	CARRY(Y5, Y6, Y10);        \
	CARRY(Y8, Y9, Y11);        \
	CARRY(Y6, Y7, Y12);        \
	VPSRLQ $26, Y9, Y10;       \
	VPAND Y14, Y9, Y9;         \
	VPSLLQ $2, Y10, Y11;       \
	VPADDQ Y10, Y5, Y5;        \
	VPADDQ Y11, Y5, Y5;        \
	CARRY(Y7, Y8, Y13);        \
	CARRY(Y5, Y6, Y10);        \
	CARRY(Y8, Y9, Y11)

// func poly1305x4(acc *[5][4]uint64, table *[9][4]uint64, msg *byte, groups int)
//
// For each group of four blocks: acc = acc table + blocks. The limbs of a block
// are of 26 bits; the four of each register belong to the blocks 0, 2, 1 and 3 of
// a group.
TEXT ·poly1305x4(SB), NOSPLIT, $0-32
	MOVQ acc+0(FP), DI
	MOVQ table+8(FP), SI
	MOVQ msg+16(FP), DX
	MOVQ groups+24(FP), CX
	VPBROADCASTQ ·mask26<>(SB), Y14
	VPBROADCASTQ ·bit24<>(SB), Y15
	VMOVDQU (DI), Y0
	VMOVDQU 32(DI), Y1
	VMOVDQU 64(DI), Y2
	VMOVDQU 96(DI), Y3
	VMOVDQU 128(DI), Y4

group:
	MULTIPLY
	VMOVDQU (DX), Y10
	VMOVDQU 32(DX), Y11
	VPUNPCKLQDQ Y11, Y10, Y12 // lower halves
	VPUNPCKHQDQ Y11, Y10, Y13 // upper halves
	VPAND Y14, Y12, Y0
	VPADDQ Y5, Y0, Y0
	VPSRLQ $26, Y12, Y1
	VPAND Y14, Y1, Y1
	VPADDQ Y6, Y1, Y1
	VPSRLQ $52, Y12, Y2
	VPSLLQ $12, Y13, Y10
	VPOR Y10, Y2, Y2
	VPAND Y14, Y2, Y2
	VPADDQ Y7, Y2, Y2
	VPSRLQ $14, Y13, Y3
	VPAND Y14, Y3, Y3
	VPADDQ Y8, Y3, Y3
	VPSRLQ $40, Y13, Y4
	VPOR Y15, Y4, Y4
	VPADDQ Y9, Y4, Y4
	ADDQ $64, DX
	DECQ CX
	JNZ group

	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	VMOVDQU Y2, 64(DI)
	VMOVDQU Y3, 96(DI)
	VMOVDQU Y4, 128(DI)
	VZEROUPPER
	RET

// func poly1305mul4(acc *[5][4]uint64, table *[9][4]uint64)
//
// acc = acc table.
TEXT ·poly1305mul4(SB), NOSPLIT, $0-16
	MOVQ acc+0(FP), DI
	MOVQ table+8(FP), SI
	VPBROADCASTQ ·mask26<>(SB), Y14
	VMOVDQU (DI), Y0
	VMOVDQU 32(DI), Y1
	VMOVDQU 64(DI), Y2
	VMOVDQU 96(DI), Y3
	VMOVDQU 128(DI), Y4
	MULTIPLY
	VMOVDQU Y5, (DI)
	VMOVDQU Y6, 32(DI)
	VMOVDQU Y7, 64(DI)
	VMOVDQU Y8, 96(DI)
	VMOVDQU Y9, 128(DI)
	VZEROUPPER
	RET
