package command

import "fmt"

// Count returns a number and the noun of the counted things: "1 key" or "2 keys".
func Count[N ~int | ~int64 | ~uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
