package agents

import (
	"slices"

	"github.com/tallylog/tally/internal/rawjson"
)

// Value is an object of a line, with its bytes.
type Value struct {
	rawjson.Members
	Raw []byte
}

// Values returns the objects of a line: one, unless a program was killed in the middle of a line, or two programs
// wrote at the same time. Then Values returns the objects at the beginning of the line and, of those at its end, the
// records of the agent: after half a line the next line is complete. Half a line may also end with an object, which
// is not a record.
func Values(line []byte, isRecord func(rawjson.Members) bool) []Value {
	if o, err := rawjson.Object(line); err == nil {
		return []Value{{o, rawjson.Trim(line)}}
	}
	line = rawjson.Trim(line)
	whole, rest := rawjson.Objects(line)
	list := make([]Value, len(whole))
	for i, o := range whole {
		list[i].Members = o
	}
	if len(whole) == 1 {
		list[0].Raw = rawjson.Trim(line[:len(line)-len(rest)])
	}
	ending, _ := Endings(rest, isRecord)
	return append(list, ending...)
}

// Endings returns the records at the end of a text, and the text before them.
func Endings(text []byte, isRecord func(rawjson.Members) bool) (list []Value, rest []byte) {
	for rest = text; ; {
		o, before, ok := rawjson.Ending(rest)
		if !ok || !isRecord(o) {
			slices.Reverse(list)
			return list, rest
		}
		list = append(list, Value{o, rest[len(before):]})
		rest = before
	}
}
