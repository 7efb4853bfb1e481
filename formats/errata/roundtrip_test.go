package errata_test

import (
	"testing"

	"github.com/tallylog/tally/formats"
)

// two is a session with two models, a failure, a selection and a rewind.
func two(id string) *session {
	return newSession(id, "claude", "gpt").ask("first <question> & more", "a1", "b1").last(func(s *summary) {
		s.Selected, s.Rating, s.Note, s.AppliedFiles = "gpt", "good", "nice", []string{"a.go"}
	}).ask("second", "a2", "").ask("third", "a3", "b3").rewind().ask("third", "a3!", "b3!")
}

func TestOne(t *testing.T) {
	files := two("ses_1").files()
	st, dir := openStore(t), folder(t, files)
	r := mustBeClean(t, st, dir)
	if r.Files != (formats.Files{Exact: 2}) {
		t.Errorf("report %+v", r)
	}
	mustEqual(t, files, exported(t, st))
	if again := mustBeClean(t, st, dir); again.Events != 0 || again.Unchanged != 1 {
		t.Errorf("a second import: %+v", again)
	}
}
