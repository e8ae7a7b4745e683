package retain

// runBytes bounds the run of updates that one entry of the window has: to find a sequence in it,
// all records before it are read.
const runBytes = 64 << 10
