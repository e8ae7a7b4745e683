package retain

// runBytes bounds the run of updates that one entry of the window has: to find a sequence in it,
// all records before it are read.
const runBytes = 64 << 10

// steps is how exact the age of updates is: they are known for longer by a part of it, so that
// few of them a second do not make an entry each.
const steps = 256
