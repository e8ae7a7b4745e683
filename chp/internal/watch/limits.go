package watch

// maxChanges bounds the changes in the queue, because each pins two cuts. A watch that
// falls further behind ends with ErrLagged.
const maxChanges = 4

// markBytes is what a mark counts in the queue.
const markBytes = 64
