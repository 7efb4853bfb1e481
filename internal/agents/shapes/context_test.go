package shapes_test

import (
	"testing"

	"github.com/tallylog/tally/internal/agents/shapes"
)

// Text that editors and agents add to a user's message is separated, anywhere in the message. The user's own text
// stays as it is.
func TestWords(t *testing.T) {
	for _, c := range []struct{ name, text, words string }{
		{"an opened file", "<ide_opened_file>The user opened menu.md</ide_opened_file>\nBake it", "Bake it"},
		{"a selection", "<ide_selection>lines 1 to 3:\n# Menu\n</ide_selection>Bake it", "Bake it"},
		{"a reminder behind", "Bake it\n\n<system-reminder>\nBe kind.\n</system-reminder>\n", "Bake it"},
		{"several", "<system-reminder>a</system-reminder>\n<ide_diagnostics>b</ide_diagnostics>\n Bake it <system-reminder>c</system-reminder>", "Bake it"},
		{"a caveat alone", "<local-command-caveat>Caveat: ...</local-command-caveat>", ""},
		{"Codex in an editor", "# Context from my IDE setup:\n\n## Open tabs:\n- a.go\n\n## My request for Codex:\nBake it\n", "Bake it"},
		{"Codex with files", "# Files mentioned by the user:\n\n## a.png: /a.png\n\n## My request for Codex:\r\n# Bake it", "# Bake it"},
		{"Cursor", "<open_and_recently_viewed_files>\na.go\n</open_and_recently_viewed_files>\n<user_query>\nBake it\n</user_query>", "Bake it"},
		{"Gemini in an editor", "Here is the user's editor context as a JSON object. This is for your information only.\n```json\n{}\n```\nBake it", "Bake it"},
		{"a title of the person's", "# Bake it\n\nwith sugar", "# Bake it\n\nwith sugar"},
		{"a heading that is quoted", "# Context from my IDE setup:\nwhat does this line mean?", "# Context from my IDE setup:\nwhat does this line mean?"},
		{"an unknown tag", "<cake>Bake it</cake>", "<cake>Bake it</cake>"},
		{"a tag that does not end", "<ide_selection>Bake it", "<ide_selection>Bake it"},
		{"a tag in the middle", "Say <system-reminder>x</system-reminder> twice", "Say <system-reminder>x</system-reminder> twice"},
		{"blank", " \n", " \n"},
	} {
		t.Run("B-23 "+c.name, func(t *testing.T) {
			if got := shapes.Words(c.text); got != c.words {
				t.Errorf("got %q, want %q", got, c.words)
			}
		})
	}
}
