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

// Values returns the objects of a line: one, unless a program was killed in the middle of a
// line, or two wrote at once. Then it returns those with which the line begins and, of those
// with which it ends, the records of the agent: behind half a line the next line stands whole.
// Half a line may end with an object too, which is no record.
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

// Endings returns the records with which a text ends, and what stands before them.
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
