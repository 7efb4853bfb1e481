package catalog

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Intervals is a live list: ascending stretches of offsets. A column stores it as text such as "1-40,57-80".
type Intervals []projector.Interval

// Contains reports whether the record of the session at an offset is in effect.
func (l Intervals) Contains(at events.Offset) bool {
	_, ok := slices.BinarySearchFunc(l, at, func(i projector.Interval, at events.Offset) int {
		switch {
		case i.To < at:
			return -1
		case i.From > at:
			return 1
		}
		return 0
	})
	return ok
}

func (l Intervals) String() string {
	var b []byte
	for i, x := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(x.From), 10)
		b = append(b, '-')
		b = strconv.AppendUint(b, uint64(x.To), 10)
	}
	return string(b)
}

// Value implements driver.Valuer.
func (l Intervals) Value() (driver.Value, error) { return l.String(), nil }

// Scan reads a column.
func (l *Intervals) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("%v is not a list of intervals", v)
	}
	*l = nil
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, _ := strings.Cut(part, "-")
		a, err := strconv.ParseUint(from, 10, 64)
		b, err2 := strconv.ParseUint(to, 10, 64)
		if err != nil || err2 != nil || a > b {
			return fmt.Errorf("%q is not an interval", part)
		}
		*l = append(*l, projector.Interval{From: events.Offset(a), To: events.Offset(b)})
	}
	return nil
}
