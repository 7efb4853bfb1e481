package evals

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"
)

// NewRunID returns an id of the form run-<ms>-<random>.
func NewRunID(now time.Time) string { return newID("run", now) }

// NewID returns an id of the form conv-<ms>-<random>.
func NewID(now time.Time) string { return newID("conv", now) }

// NewTrajectoryID returns an id of the form traj-<ms>-<random>.
func NewTrajectoryID(now time.Time) string { return newID("traj", now) }

// randomDigits is the length of the random part.
const randomDigits = 7

func newID(prefix string, now time.Time) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	b := append([]byte(prefix), '-')
	b = append(strconv.AppendInt(b, now.UnixMilli(), 10), '-')
	for n := 0; n < randomDigits; {
		var random [2 * randomDigits]byte
		rand.Read(random[:]) // never fails
		for _, c := range random {
			if int(c) < 256-256%len(digits) && n < randomDigits { // every digit is equally likely
				b = append(b, digits[int(c)%len(digits)])
				n++
			}
		}
	}
	return string(b)
}

// TimestampOfID returns the time in an id that begins with run-, conv- or traj- and milliseconds. It returns false if
// there is no time.
func TimestampOfID(id string) (time.Time, bool) {
	switch prefix, _, _ := strings.Cut(id, "-"); prefix {
	case "run", "conv", "traj":
		return timestampOfRun(id)
	}
	return time.Time{}, false
}

// timestampOfRun returns the time in a run's id, with any prefix.
func timestampOfRun(id string) (time.Time, bool) {
	_, rest, _ := strings.Cut(id, "-")
	ms, _, _ := strings.Cut(rest, "-")
	return timeOfMillis(ms)
}

// maxMillis is the last millisecond of a JavaScript date.
const maxMillis = 8_640_000_000_000_000

func timeOfMillis(text string) (time.Time, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return time.Time{}, false
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms > maxMillis {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}
