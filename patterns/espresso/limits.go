package espresso

// DefaultQueue is the default of Options.Queue.
const DefaultQueue = 16 << 20

// minQueue is the lower limit of Options.Queue.
const minQueue = 1 << 10

// maxWait bounds the wait for an event, so that a time.Duration can hold it: 146 years.
const maxWait = 1 << 62
