package wire

import (
	"encoding/binary"

	"clustermap/sockets"
	"clustermap/zmtp"
)

// A client asks a server that has announced it for the versions of a key, on the snapshot
// connection:
//
//	HISTORY?
//	number   8 bytes, of the client's choice
//	key
//	after    8 bytes: only versions with higher sequences
//
// The server answers
//
//	HISTORY
//	number   8 bytes: of the question
//	more     1 byte: 1 if it has more versions, which another question gets
//	body     a portion of versions, oldest first: see package history
//
// Numbers are big-endian.
const (
	AskHistory    = "HISTORY?"
	answerHistory = "HISTORY"
)

// KeepsHistory reports whether a server answers HISTORY?.
func KeepsHistory(server *sockets.Peer) bool { return announces(server, propertyHistory) }

// HistoryQuestion returns the frames of the question.
func HistoryQuestion(number uint64, key string, after int64) [][]byte {
	return [][]byte{
		[]byte(AskHistory), binary.BigEndian.AppendUint64(nil, number), []byte(key),
		binary.BigEndian.AppendUint64(nil, uint64(after)),
	}
}

// ParseHistoryQuestion parses the question. For any other message ok is false.
func ParseHistoryQuestion(m zmtp.WireMessage) (number uint64, key []byte, after int64, ok bool) {
	if m.Len() != 4 {
		return 0, nil, 0, false
	}
	command, m := m.Next()
	n, m := m.Next()
	key, m = m.Next()
	a, _ := m.Next()
	if string(command) != AskHistory || len(n) != 8 || len(a) != 8 {
		return 0, nil, 0, false
	}
	return binary.BigEndian.Uint64(n), key, int64(binary.BigEndian.Uint64(a)), true
}

// AppendHistory appends the answer in wire form.
func AppendHistory(dst []byte, number uint64, more bool, body []byte) []byte {
	flag := []byte{0}
	if more {
		flag[0] = 1
	}
	return zmtp.AppendMessage(dst, []byte(answerHistory), binary.BigEndian.AppendUint64(nil, number), flag, body)
}

// ParseHistory parses the answer. For any other message ok is false.
func ParseHistory(m zmtp.WireMessage) (number uint64, more bool, body []byte, ok bool) {
	if m.Len() != 4 {
		return 0, false, nil, false
	}
	command, m := m.Next()
	n, m := m.Next()
	flag, m := m.Next()
	body, _ = m.Next()
	if string(command) != answerHistory || len(n) != 8 || len(flag) != 1 {
		return 0, false, nil, false
	}
	return binary.BigEndian.Uint64(n), flag[0] == 1, body, true
}
