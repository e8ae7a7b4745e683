package segment

// segmentBytes is the size of a segment. The current segment and the next one are
// preallocated, so the smallest log takes twice this much of the disk.
const segmentBytes = 16 << 20

// writeBytes is the size of a writer's buffer, and the maximum of its writes. Large writes
// at multiples of their size cost the system less, and the buffer still fits into the cache
// of a processor.
const writeBytes = 256 << 10
