package chat_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
)

func message(text string) events.Raw {
	return events.Raw(`{"User":{"blocks":[{"Text":{"text":"` + text + `"}}]}}`)
}

// drawn draws a snapshot with few different messages, so that many are kept.
func drawn(t *rapid.T, label string) chat.Snapshot {
	s := chat.Snapshot{Messages: []events.Raw{}, Pinned: []bool{}}
	for range rapid.IntRange(0, 12).Draw(t, label) {
		raw := message(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "text"))
		if rapid.Bool().Draw(t, "spaced") {
			raw = append([]byte{' '}, raw...)
		}
		s.Messages = append(s.Messages, raw)
		s.Pinned = append(s.Pinned, rapid.Bool().Draw(t, "pinned"))
	}
	return s
}

// made applies a change, as the fold of threads does.
func made(from chat.Snapshot, c chat.Change) chat.Snapshot {
	to := chat.Snapshot{}
	if !c.Replaced {
		to.Messages = append(to.Messages, from.Messages...)
		to.Pinned = append(to.Pinned, from.Pinned...)
	}
	for i, pinned := range c.Pins {
		to.Pinned[i] = pinned
	}
	for _, it := range append(c.Items, c.Appended...) {
		if it.Keep != nil {
			to.Messages = append(to.Messages, from.Messages[it.Keep[0]:it.Keep[1]]...)
			to.Pinned = append(to.Pinned, from.Pinned[it.Keep[0]:it.Keep[1]]...)
			continue
		}
		to.Messages, to.Pinned = append(to.Messages, it.Turn), append(to.Pinned, it.Pinned)
	}
	return to
}

// For any two snapshots, the change between them turns one into the other.
func TestBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawn(t, "from"), drawn(t, "to")
		c := chat.Between(from, to)
		if have := made(from, c); !chat.Equal(have, to) {
			t.Fatalf("%s\n%s\n%+v", chat.Append(nil, have), chat.Append(nil, to), c)
		}
		if c.Nothing() != chat.Equal(from, to) {
			t.Fatalf("Nothing() = %v", c.Nothing())
		}
		if have := made(from, chat.Replace(from, to)); !chat.Equal(have, to) {
			t.Fatal("the replacement has another result than the change")
		}
		if p := c.Payload("main", nil, "save"); p != nil && p.Validate() != nil {
			t.Fatalf("%+v: got %v", p, p.Validate())
		}
	})
}

// Kept messages are not repeated, wherever they are.
func TestNothingRepeated(t *testing.T) {
	text := func(letters string) chat.Snapshot {
		var s chat.Snapshot
		for _, l := range strings.Split(letters, "") {
			s.Messages, s.Pinned = append(s.Messages, message(l)), append(s.Pinned, false)
		}
		return s
	}
	for _, c := range []struct{ from, to, want string }{
		{"abcdef", "Sdef", "new 3-6"},
		{"abcdef", "Sbdf", "new 1-2 3-4 5-6"},
		{"abcdef", "abXef", "0-2 new 4-6"},
		{"abcdef", "ab", "0-2"},
		{"abcdef", "fabcde", "new 0-5"},
		{"aaaa", "aaa", "0-3"},
		{"abab", "bab", "1-4"},
	} {
		var have []string
		for _, it := range chat.Between(text(c.from), text(c.to)).Items {
			if it.Keep == nil {
				have = append(have, "new")
			} else {
				have = append(have, fmt.Sprintf("%d-%d", it.Keep[0], it.Keep[1]))
			}
		}
		if strings.Join(have, " ") != c.want {
			t.Errorf("%s to %s: %v, want %s", c.from, c.to, have, c.want)
		}
	}
}

// Messages of older writers are read as today's, but only by Modern.
func TestOldShapes(t *testing.T) {
	for old, want := range map[string]string{
		`{"User":{"blocks":[{"Text":"a\n"}]}}`:                                         `{"User":{"blocks":[{"Text":{"text":"a\n"}}]}}`,
		`{"Assistant":{"blocks":[{"Text":"a"}]}}`:                                      `{"Assistant":{"blocks":[{"Text":{"text":"a"}}]}}`,
		`{"User":{"x":1,"blocks":[{"Text":"a"}]}}`:                                     `{"User":{"x":1,"blocks":[{"Text":{"text":"a"}}]}}`,
		`{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"Text":"t"}}}]}}`:  `{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"blocks":[{"type":"text","text":"t"}]}}}]}}`,
		`{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"Error":"t"}}}]}}`: `{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"blocks":[{"type":"text","text":"t"}],"is_error":true}}}]}}`,
	} {
		have, changed, err := chat.Modern([]byte(old))
		if err != nil || !changed || string(have) != want {
			t.Errorf("%s: %s, %v, %v", old, have, changed, err)
		}
		file := `{"version":1,"messages":[` + old + `],"pinned":[false]}`
		if _, err := chat.Parse([]byte(file)); err == nil {
			t.Errorf("%s was accepted as a message of the current form", old)
		}
		if s, isOld, err := chat.ParseAny([]byte(file)); err != nil || !isOld || string(s.Messages[0]) != want {
			t.Errorf("%s: got %v, error %v", file, isOld, err)
		}
	}
	for _, wrong := range []string{`{"User":{"blocks":[{"Text":7}]}}`, `{"User":{"blocks":7}}`, `{"User":7}`, `{"Robot":{"blocks":[]}}`, `{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"Other":"t"}}}]}}`} {
		if have, _, err := chat.Modern([]byte(wrong)); err == nil {
			t.Errorf("%s: got %s", wrong, have)
		}
	}
}
