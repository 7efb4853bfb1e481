package render

import (
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/turns"
)

// textOf returns what a turn says in one text, and who speaks in it, for search: what was
// said, thought, called, answered and shown, without labels and without images. ok says
// whether the turn could be read; of one that could not, its JSON is searched.
func textOf(raw events.Raw, read turns.Turn, ok bool) (roles, text string) {
	if !ok {
		return "json", turns.Plain(string(raw))
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
