package events

import (
	"fmt"
	"strconv"
	"strings"
)

// Offset is the position of a record in the log: the JetStream stream sequence. The first record is 1; 0 is "before
// everything". Offsets order all records of a store, whatever their subject.
type Offset uint64

// MaxOffset is the largest offset: beyond it a JSON number would no longer be
// exact in every language.
const MaxOffset Offset = 1<<53 - 1

// String returns the form used in commands, URLs and messages: @1234.
func (o Offset) String() string { return "@" + strconv.FormatUint(uint64(o), 10) }

// Padded returns the offset as 20 decimal digits, the form for CloudEvents attributes: those have no integers beyond 32
// bits, and the padded text sorts like the number.
func (o Offset) Padded() string { return fmt.Sprintf("%020d", uint64(o)) }

// ParseOffset parses @1234, 1234 or the padded form.
func ParseOffset(s string) (Offset, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "@"), 10, 64)
	if err != nil || Offset(n) > MaxOffset || strings.HasPrefix(s, "@@") || strings.HasPrefix(s, "+") {
		return 0, &InvalidError{Field: "offset", Reason: fmt.Sprintf("%q is not an offset such as @1234", s)}
	}
	return Offset(n), nil
}
