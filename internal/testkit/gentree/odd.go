package gentree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// oddID returns an id that makes a hostile file name.
func (s *session) oddID(i int) string {
	ids := []string{
		"with space", "\u00fcml\u00e4ut", "emoji-\U0001f600", "a:b", "CON", "nul.txt", "-x", "...", ".hidden", "a=2Fb", "a=41", "a=zz", "x.", "x ",
		"star*and?", "per%cent", "back\\slash", "<angle>", "tab\there", "no\xffutf8", "a:\xff", strings.Repeat("long", 60), "=~" + strings.Repeat("0", 32),
		"quote\"quote", "new\nline", "semi;colon", "~", "a.b.c", "\u202eright", "NaN", "null",
	}
	id := ids[s.IntN(len(ids))]
	if s.once(2) {
		id = fmt.Sprintf("%s%d", id, i)
	}
	return id
}

var oddValues = []raw{
	"1.0", "1e+21", "-0", "1E5", "0.1e-7", "123456789012345678901234567890", "1e400", `"\u003c\u003e\u0026"`, `"\/"`, `"\ud83d"`, `"\ude00\ud83d"`,
	`"\u2028\u0000"`, "\"\u2028\"", `"<>&"`, "[ 1 ,\t2 ]", `{"a":1,"a":2}`, `{"":{}}`, "[[[[]]]]", "null", "true", `"\b\f\u0008"`, "{ }", "[\t]",
}

func (g *generator) oddValue() value { return oddValues[g.IntN(len(oddValues))] }

// oddLine returns the line of a step with rare features.
func (s *session) oddLine(i int) string {
	o := s.step(i).line(s.id)
	if s.once(2) {
		o = append(o, member{s.word(3), s.oddValue()}, member{"x", s.oddValue()})
	}
	if s.once(3) {
		s.Shuffle(len(o), func(i, j int) { o[i], o[j] = o[j], o[i] })
	}
	if s.once(8) {
		o[s.IntN(len(o))].value = s.oddValue()
	}
	if s.once(10) {
		o = append(o, member{"id", "msg-" + s.word(5)})
	}
	if s.once(10) {
		return strings.ReplaceAll(spell(o, 0, " "), "\n", " ")
	}
	return spell(o, 0, "")
}

// badLine returns a line that is not a turn.
func (s *session) badLine(line string) string {
	bad := []string{"", "  ", "null", "{", line[:len(line)/2], "\xff\xfe", "{\"a\":\"\xff\"}", "not json", "{} {}", "\x00",
		strings.Repeat("[", 1100) + strings.Repeat("]", 1100), "\ufeff{}", "{\"a\":1,}", "NaN", "'x'"}
	return bad[s.IntN(len(bad))]
}

// legalLine returns a line that is a turn but no step.
func (s *session) legalLine() string {
	legal := []string{"42", "[]", `"text"`, "true", "{}", " {}", "{}\t", strings.Repeat("[", 997) + strings.Repeat("]", 997), `{"timestamp":17}`, `{"timestamp":"0000-01-01T00:00:00Z"}`, `{"timestamp":"9999-12-31T23:59:59-01:00"}`, `{"input":"x","output":{}}`}
	return legal[s.IntN(len(legal))]
}

func (s *session) writeOdd() error {
	for _, write := range []func() error{s.oddMeta, s.oddSteps, s.oddTraces, s.oddRuns, s.oddFiles} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// spell writes a value in a random layout.
func (s *session) spell(v value) string {
	indents := []string{"", "\t", "    ", "  ", "  ", "  "}
	text := spell(v, 0, indents[s.IntN(len(indents))])
	switch s.IntN(12) {
	case 0, 1:
		text += "\n"
	case 2:
		text += "\r\n"
	case 3:
		text = strings.ReplaceAll(text, "\n", "\r\n")
	case 4:
		text = "\ufeff" + text
	case 5:
		text = " \n" + text + "\n\n"
	}
	return text
}

// oddFile writes a file in a random layout, sometimes cut off.
func (s *session) oddFile(name string, v value) error {
	text := s.spell(v)
	switch s.IntN(12) {
	case 0:
		text = text[:s.IntN(len(text))]
	case 1:
		text = "null"
	}
	return s.file(filepath.Join(s.dir, filepath.FromSlash(name)), func(w *output) { w.text(text) })
}

func (s *session) oddMeta() error {
	if s.once(6) {
		return nil
	}
	meta := object{{"id", s.id}, {"createdAt", s.at(0)}}
	switch s.IntN(6) {
	case 0:
		meta = append(meta, member{"x", s.oddValue()})
	case 1:
		meta[1].value = s.oddValue()
	}
	return s.oddFile("meta.json", meta)
}

func (s *session) oddSteps() error {
	if s.once(8) {
		return nil
	}
	if s.once(4) {
		return s.steps(s.once(2))
	}
	return s.file(filepath.Join(s.dir, "conversation.jsonl"), func(w *output) {
		end := "\n"
		if s.once(4) {
			end = "\r\n"
		}
		if s.once(8) {
			w.text("\ufeff")
		}
		n := s.turns
		if s.once(8) {
			n = 0
		}
		for i := range n {
			if i > 0 {
				w.text(end)
			}
			line := s.oddLine(i)
			if s.once(25) {
				line = s.badLine(line)
			} else if s.once(25) {
				line = s.legalLine()
			}
			w.text(line)
			s.stats.Turns++
		}
		for s.once(3) {
			w.text(end)
		}
		if s.once(20) {
			w.text("\n")
		}
	})
}

// oddTraces writes traces that do not follow from the steps.
func (s *session) oddTraces() error {
	if s.once(2) {
		if err := s.oddFile("trajectory.meta.json", s.trajectory()); err != nil {
			return err
		}
	}
	if s.once(2) {
		return nil
	}
	list := array{}
	for i := range s.IntN(5) {
		t := s.step(i).trace()
		if s.once(3) {
			t = append(t, member{"x", s.oddValue()})
		}
		list = append(list, t)
	}
	return s.oddFile("stepTraces.json", list)
}

func (s *session) oddRuns() error {
	for range s.IntN(4) {
		if err := s.run(); err != nil {
			return err
		}
	}
	for _, name := range []string{"runs/old.json", "runs/tally/a:b.json", "runs/tally/a=3Ab.json", "runs/tally/note.txt", "runs/tally/sub/x.json", "runs/tally/.json",
		"runs/trajectory/\xff.json", "runs/tally/run x.json", "runs/trajectory/CON.json", "runs/tally/" + strings.Repeat("r", 230) + ".json", "runs/other/x.json"} {
		if !s.once(4) {
			continue
		}
		v := value(object{{"runId", s.word(5)}, {"timestamp", s.oddValue()}, {"perTargetResults", array{s.oddValue()}}, {"completed", s.oddValue()}})
		if s.once(5) {
			v = s.oddValue()
		}
		if err := s.oddFile(name, v); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) oddFiles() error {
	for _, name := range []string{"notes.txt", "log/trace.bin", "conversation.jsonl.bak", "a=41.txt", "\xfe.bin", "deep/er/and/deeper.md", "run.sh"} {
		if !s.once(4) {
			continue
		}
		content := s.prose(s.IntN(2000))
		if s.once(2) {
			content = "\x00\xff\x01" + content
		}
		path := filepath.Join(s.dir, filepath.FromSlash(name))
		if err := s.file(path, func(w *output) { w.text(content) }); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".sh") {
			if err := os.Chmod(path, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}
