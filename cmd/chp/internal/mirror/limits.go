package mirror

import "time"

const (
	// lookAnyway is the time between two looks if nothing was reported: the system drops reports
	// when there are too many.
	lookAnyway = 10 * time.Second
	// rest is the least time between two looks.
	rest = 50 * time.Millisecond
	// fresh is how old a change of a file must be for the next one to have another time.
	fresh = 2 * time.Second

	maxTold = 1024 // complaints that are not repeated
	maxPart = 255  // bytes of a name between slashes
	maxKey  = 255  // bytes of a key

	// temporary begins the names of unfinished files.
	temporary = ".chp-sync-"
)
