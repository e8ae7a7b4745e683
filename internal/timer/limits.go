package timer

import "time"

// wheelMaps is the number of maps from keys to timers, so that growing one stops the clock for little time.
const wheelMaps = 256

// keepMap is the size up to which an empty map keeps its memory.
const keepMap = 256

// wheelTick is the precision of deadlines.
const wheelTick = 10 * time.Millisecond
