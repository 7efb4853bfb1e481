package redact_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/ingest/redact"
	"github.com/tallylog/tally/internal/testkit"
)

// maxWork is the maximum number of examined bytes per byte of a line: several passes over a text, over its form without
// terminal sequences, and over each unescaped form.
const maxWork = 300

// The work per byte is bounded for any context of the rules' words: each word is repeated, alone and with possible
// suffixes.
func TestWorkPerByte(t *testing.T) {
	t.Run("B-04 the work per byte is bounded", func(t *testing.T) {
		r := mustNew(t, redact.Options{Values: map[string]string{"V": "sk-ant-sk-ant"}})
		d := dice{rand.New(rand.NewPCG(14, 1))}
		var units []string
		behind := []string{"", "=", "\x1b[31m", "=\"", "1a2B", " ", ".", ":'", "\\", "%", "A1b2C3d4E5f6G7h8I9j0"}
		switch {
		case testkit.Soak():
		case testkit.Full():
			behind = behind[:3]
		default:
			behind = behind[:1]
		}
		for _, w := range redact.Words() {
			for _, s := range behind {
				units = append(units, w+s)
			}
		}
		for _, s := range seeds(d) {
			units = append(units, s.before+s.secret+s.after, s.secret)
		}
		units = append(units, "a", "\\u0041", `\\\\`, `{"a":`, "[redacted:x]", "]", "\x1b]0;", "\x1b]", `\e]`, "\x1bP", strings.Join(redact.Words(), ""), strings.Join(redact.Words(), "="),
			"password=\"", "password=\\\"", "token:", "api_key=api_key", "x-api-key=", "authorization: bearer x", "%2525", "&amp;", "=3D")
		size, highest, of := 1<<14, 0, ""
		if testkit.Soak() {
			size = 1 << 16
		}
		for _, unit := range units {
			work := workOf(r, unit, size)
			if work > highest {
				highest, of = work, unit
			}
			if work > maxWork {
				t.Errorf("%.80q: %d bytes are examined for each byte", unit, work)
			}
		}
		t.Logf("at most %d bytes for each of %.80q", highest, of)
	})
}

// workOf returns the examined bytes per byte of a text of a given size that repeats a unit.
func workOf(r *redact.Redactor, unit string, size int) int {
	text := strings.Repeat(unit, size/len(unit)+1)
	work := 0
	for _, line := range []string{text, `{"a":"` + inside(text) + `"}`, "x" + text} {
		work = max(work, r.Work([]byte(line))/len(line))
	}
	return work
}
