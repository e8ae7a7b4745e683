package kvmsg

import "time"

// MaxKey bounds a key in bytes, so that its frame has a short header.
const MaxKey = 255

// MaxProperties bounds a properties frame in bytes.
const MaxProperties = 64 << 10

// MaxTTL bounds the time to live. It also excludes the absolute times that the guide's
// servers write into the ttl of a KVSYNC.
const MaxTTL = 10 * 365 * 24 * time.Hour

// maxAuthor bounds the author's name in a stamp, in bytes: a longer one, which an
// authenticator has made up, is left out.
const maxAuthor = 255
