package render

import (
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/turns"
	"github.com/tallylog/tally/projector"
)

// Text returns what a turn says in one text, and who speaks in it, for search: what was
// said, thought, called, answered and shown, without labels and without images. Bytes
// that are not JSON say nothing.
func Text(t projector.Turn) (roles, text string) {
	if t.Raw == nil {
		return "", ""
	}
	read, ok := turns.Read(t.Raw)
	if !ok {
		return "json", turns.Plain(string(t.Raw))
	}
	var who, said []string
	for _, p := range read.Parts {
		if role := speaker(p); !slices.Contains(who, role) {
			who = append(who, role)
		}
		for _, text := range []string{p.Name, turns.Plain(p.Text)} {
			if text != "" {
				said = append(said, text)
			}
		}
	}
	return strings.Join(who, " "), strings.Join(said, "\n")
}
