package agentstest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A watch records Codex' threads: two runs, forks, reverts, a compaction, an archive.
func TestCodexForksByReference(t *testing.T) {
	codex := installed(t, "codex-0.169", "codex")
	m := newMachine(t)
	home := m.codexHome(newModel(t))
	stop := m.watch("codex")

	first := m.codexExec(codex, "what is here")
	m.codexExec(codex, "resume", first, "and now")
	s := m.appServer(codex)
	var answers []thread
	told := func(id string) thread {
		answers = append(answers, s.read(id))
		return answers[len(answers)-1]
	}

	fork := threadOf(s, s.call("thread/fork", object{"threadId": first})).ID
	s.turn(fork, "in the fork")
	told(fork)
	s.call("thread/compact/start", object{"threadId": fork})
	s.completed(fork, "")
	s.turn(fork, "after the compaction")
	told(fork)

	other := s.start(m.work).ID
	var turns []string
	for _, text := range []string{"one", "two", "three"} {
		turns = append(turns, s.turn(other, text))
	}
	told(other)
	s.call("thread/revert", object{"threadId": other, "beforeTurnId": turns[2]})
	s.turn(other, "after the revert")
	told(other)
	early := threadOf(s, s.call("thread/fork", object{"threadId": other, "lastTurnId": turns[0]})).ID
	s.turn(early, "in a fork of the first turn")
	told(early)
	s.call("thread/revert", object{"threadId": other, "beforeTurnId": turns[1]})
	s.turn(other, "after another revert")
	told(other)
	s.call("thread/archive", object{"threadId": fork})
	told(first)
	s.close()

	m.caughtUp(home, isRollout)
	stop()
	c := m.compareCodex(home)
	c.lines()
	c.bytes()
	c.lag()
	if forks, reverts := c.places(); forks != 2 || reverts != 2 {
		t.Errorf("got %d forks and %d reverts, want 2 and 2", forks, reverts)
	}
	for _, answer := range answers {
		c.is(answer)
	}
	c.costs()
}

// An older Codex copies the turns of a fork, and reports how many turns a rollback takes back.
func TestCodexForksByCopy(t *testing.T) {
	codex := installed(t, "codex-0.118", "codex")
	m := newMachine(t)
	home := m.codexHome(newModel(t))
	stop := m.watch("codex")

	first := m.codexExec(codex, "what is here")
	m.codexExec(codex, "resume", first, "and now")
	s := m.appServer(codex)
	fork := threadOf(s, s.call("thread/fork", object{"threadId": first, "persistExtendedHistory": false})).ID
	s.turn(fork, "in the fork")
	answers := []thread{s.read(fork)}
	s.call("thread/rollback", object{"threadId": fork, "numTurns": 1})
	s.turn(fork, "after the rollback")
	answers = append(answers, s.read(fork))
	s.call("thread/compact/start", object{"threadId": fork})
	s.completed(fork, "")
	s.turn(fork, "after the compaction")
	answers = append(answers, s.read(fork), s.read(first))
	s.call("thread/archive", object{"threadId": fork})
	s.close()

	m.caughtUp(home, isRollout)
	stop()
	c := m.compareCodex(home)
	c.lines()
	c.bytes()
	c.lag()
	c.places()
	c.calls = false
	for _, answer := range answers {
		c.is(answer)
	}
	c.costs()
	rewinds := 0
	for _, r := range c.records {
		if r.Event.Type == "tally.session.rewound.v1" {
			rewinds++
		}
	}
	if rewinds != 1 {
		t.Errorf("got %d rewinds, want one for the rollback", rewinds)
	}
}

// Codex continues a fork that tally fork --as codex wrote, at the requested position: by reference if it has the
// files, otherwise by copy.
func TestCodexResumesForks(t *testing.T) {
	codex := installed(t, "codex-0.169", "codex")
	m, model := newMachine(t), newModel(t)
	home := m.codexHome(model)
	stop := m.watch("codex")
	s := m.appServer(codex)
	id := s.start(m.work).ID
	for _, text := range []string{"one", "two", "three"} {
		s.turn(id, text)
	}
	whole := s.read(id)
	s.call("thread/revert", object{"threadId": id, "beforeTurnId": whole.Turns[2].ID})
	s.turn(id, "four")
	reverted := s.read(id)
	s.close()
	m.caughtUp(home, isRollout)

	f := resumed{m, model, codex, "codex/" + id}
	first := fmt.Sprint("@", m.ended(whole.Turns[0].ID))
	f.reference(first, whole.shown()[:3])
	f.reference("head", reverted.shown())
	f.reference(fmt.Sprint("@", m.ended(whole.last())), whole.shown()) // before the revert
	f.reference("#8", whole.shown()[:6])                               // the second answer, before the end of the turn
	f.reference("#5", whole.shown()[:4])                               // the second prompt, which the file has twice
	m.tally("rewind", f.session, "--to", first, "--yes")
	f.copy("head", whole.shown()[:3])
	stop()
	f.elsewhere("one", fmt.Sprint("@", m.ended(reverted.last())), reverted.shown())
	f.elsewhere("two", "#1", whole.shown()[:1])
}

// ended returns the event with which a turn ended.
func (m *machine) ended(turn string) (at int64) {
	m.t.Helper()
	for _, r := range m.records() {
		if r.Event.Type == "tally.run.finished.v1" && r.Event.Data.Run.ID == turn {
			at = r.Offset
		}
	}
	if at == 0 {
		m.t.Fatalf("turn %s has no end", turn)
	}
	return at
}

// resumed is a session that Codex continues.
type resumed struct {
	*machine
	model          *model
	codex, session string
}

// forked is tally's report of a fork for Codex.
type forked struct {
	Session, File string
	Copied        bool
}

func (r resumed) fork(at string, flags ...string) forked {
	r.t.Helper()
	return parsed[forked](r.t, r.tally(append([]string{"fork", r.session, "--at", at, "--as", "codex", "-o", "json"}, flags...)...))
}

// reference expects that Codex continues a fork by reference; copy expects that it continues one by copy, in the same
// home.
func (r resumed) reference(at string, shown []string) { r.t.Helper(); r.inPlace(at, shown, false) }
func (r resumed) copy(at string, shown []string)      { r.t.Helper(); r.inPlace(at, shown, true) }

func (r resumed) inPlace(at string, shown []string, copied bool) {
	r.t.Helper()
	fork := r.fork(at)
	if fork.Copied != copied {
		r.t.Errorf("%s as of %s: got copied %v", r.session, at, fork.Copied)
	}
	got := r.goesOn(fork, at, shown)
	home := filepath.Join(r.home, ".codex")
	r.caughtUp(home, isRollout)
	r.compareCodex(home).is(got)
}

// elsewhere expects that Codex continues a fork in a home without other files.
func (r resumed) elsewhere(name, at string, shown []string) {
	r.t.Helper()
	r.machine = newMachineOf(r.machine, name)
	home := r.codexHome(r.model)
	if fork := r.fork(at, "--into", home); fork.Copied {
		r.goesOn(fork, at, shown)
	} else {
		r.t.Errorf("%s refers to files of another home", fork.File)
	}
}

// goesOn makes Codex continue a fork, and compares the turns that it knows.
func (r resumed) goesOn(fork forked, at string, shown []string) thread {
	r.t.Helper()
	id := strings.TrimPrefix(fork.Session, "codex/")
	r.codexExec(r.codex, "resume", id, "go on")
	said := slices.DeleteFunc(slices.Clone(shown), func(what string) bool { return what == "call" })
	r.same("what the model is told as of "+at, r.model.saying(), append(said, "user: go on"))
	s := r.appServer(r.codex)
	got := s.read(id)
	s.close()
	list := got.shown()
	r.same("what goes on as of "+at, list[:min(len(shown), len(list))], shown)
	if rest := list[min(len(shown), len(list)):]; len(rest) != 3 || rest[0] != "user: go on" {
		r.t.Errorf("as of %s: got the continuation %q", at, rest)
	}
	return got
}
