//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly) || portable

package ipcpath

// Max is the maximum size of the path of an ipc endpoint in bytes.
const Max = 107
