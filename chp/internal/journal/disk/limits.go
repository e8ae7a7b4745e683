package disk

// shortBytes is how much must have been appended since the last checkpoint for another one to make
// room on a full disk: at least a segment, which is removed then.
const shortBytes = 16 << 20

// checkpointEntry is the approximate size of a checkpoint's entries, in bytes.
const checkpointEntry = 256 << 10

// reportEvery is the number of entries after which the progress is reported.
const reportEvery = 64
