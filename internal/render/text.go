package render

import (
	"slices"
	"strings"

	"github.com/tallylog/tally/projector"
)

// Text returns what a turn says in one text, and who speaks in it. Bytes that are
// not JSON say nothing.
func Text(t projector.Turn) (roles, text string) {
	if t.Raw == nil {
		return "", ""
	}
	var who, said []string
	for _, line := range Turn(t) {
		if !slices.Contains(who, line.Role) {
			who = append(who, line.Role)
		}
		said = append(said, line.Text)
	}
	return strings.Join(who, " "), strings.Join(said, "\n")
}
