package wire

import (
	"encoding/binary"

	"clustermap/internal/kvmsg"
	"clustermap/zmtp"
)

// A client asks up to which sequence the server has committed updates, on the snapshot
// connection:
//
//	SYNC?
//	number     8 bytes, of the client's choice
//	heartbeat  1 byte: 1 if the client also wants HUGZ with that sequence, on the connection of
//	           its updates: a client of subtrees does not see from those that it has come so far
//
// The server answers
//
//	SYNC
//	number     8 bytes: of the question, and of all before it that were not answered
//	sequence   8 bytes: of the last update that it has published as the active server
//
// Numbers are big-endian.
const (
	askSync    = "SYNC?"
	answerSync = "SYNC"
)

// AppendSyncQuestion appends the question in wire form.
func AppendSyncQuestion(dst []byte, number uint64, heartbeat bool) []byte {
	dst = kvmsg.AppendFrame(dst, []byte(askSync), kvmsg.FlagMore)
	dst = appendNumber(dst, number, kvmsg.FlagMore)
	flag := []byte{0}
	if heartbeat {
		flag[0] = 1
	}
	return kvmsg.AppendFrame(dst, flag, 0)
}

// ParseSyncQuestion parses the question. For any other message ok is false.
func ParseSyncQuestion(m zmtp.WireMessage) (number uint64, heartbeat, ok bool) {
	if !begins(m, askSync) || m.Len() != 3 {
		return 0, false, false
	}
	_, m = m.Next()
	n, m := m.Next()
	flag, _ := m.Next()
	if len(n) != 8 || len(flag) != 1 {
		return 0, false, false
	}
	return binary.BigEndian.Uint64(n), flag[0] == 1, true
}

// AppendSync appends the answer in wire form.
func AppendSync(dst []byte, number uint64, sequence int64) []byte {
	dst = kvmsg.AppendFrame(dst, []byte(answerSync), kvmsg.FlagMore)
	dst = appendNumber(dst, number, kvmsg.FlagMore)
	return appendNumber(dst, uint64(sequence), 0)
}

// ParseSync parses the answer. For any other message ok is false.
func ParseSync(m zmtp.WireMessage) (number uint64, sequence int64, ok bool) {
	if !begins(m, answerSync) || m.Len() != 3 {
		return 0, 0, false
	}
	_, m = m.Next()
	n, m := m.Next()
	s, _ := m.Next()
	if len(n) != 8 || len(s) != 8 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(n), int64(binary.BigEndian.Uint64(s)), true
}

// AppendHeartbeat appends HUGZ.
func AppendHeartbeat(dst []byte, sequence int64) []byte {
	dst = kvmsg.AppendFrame(dst, []byte(kvmsg.KeyHUGZ), kvmsg.FlagMore)
	dst = appendNumber(dst, uint64(sequence), kvmsg.FlagMore)
	dst = kvmsg.AppendFrame(dst, nil, kvmsg.FlagMore)
	dst = kvmsg.AppendFrame(dst, nil, kvmsg.FlagMore)
	return kvmsg.AppendFrame(dst, nil, 0)
}

func appendNumber(dst []byte, n uint64, flags byte) []byte {
	return binary.BigEndian.AppendUint64(zmtp.AppendHeader(dst, flags, 8), n)
}

// begins reports whether the first of several short frames is a command.
func begins(m zmtp.WireMessage, command string) bool {
	return len(m) > 2+len(command) && m[0] == kvmsg.FlagMore && int(m[1]) == len(command) && string(m[2:2+len(command)]) == command
}
