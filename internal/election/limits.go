package election

// MaxEpoch is the highest epoch. A node whose epoch has reached it keeps it: data and
// roles then decide.
const MaxEpoch = 1<<40 - 1

// MaxJump bounds how far a peer's epoch is believed to be above the own one. Epochs rise by
// one with each failover and restart, so a larger step is a damaged or forged message, or
// the peer has believed one: then this node catches up in further steps.
const MaxJump = 1 << 32
