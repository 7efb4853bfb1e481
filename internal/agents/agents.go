// Package agents says what the files mean in which coding agents keep their sessions.
//
// An [Agent] knows where its files are, which session a file belongs to and, by its
// [Fold], what each line says: in which thread it stands, and which facts follow from it.
// All of it is pure: no file is opened, no clock is read, and the same lines give the
// same answers on every machine. Who follows the files and appends what is said here is
// package ingest.
//
// The line itself is always kept as it is, whatever is understood of it, so a fold never
// fails: what it does not know stands in the thread [Log].
package agents

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Project names the project that a session works on: the repository, if its address is
// known, else the folder. It is the last part of either, however the system spells paths,
// so that one project has one name in all agents.
func Project(repository, folder string) string {
	for _, path := range []string{strings.TrimSuffix(strings.TrimRight(repository, "/"), ".git"), strings.TrimRight(folder, `/\`)} {
		if name := path[strings.LastIndexAny(path, `/\:`)+1:]; name != "" {
			return name
		}
	}
	return ""
}

// Threads of a session that an agent keeps.
const (
	Main = events.MainThread // what the person and the model said
	Log  = events.LogThread  // everything else in the session's own file
)

// Agent is a program that keeps its sessions in files of lines.
type Agent interface {
	// Name is the agent's short name, as in ids and on the command line: claude.
	Name() string
	// Format is the name of the layout that its files have: claude-code.
	Format() string
	// Roots returns the folders in which it keeps sessions, given the environment's
	// variables. They need not exist.
	Roots(env func(string) string) []string
	// Wants reports whether a file may hold lines of a session. The name is relative to a
	// root, with slashes.
	Wants(name string) bool
	// Below returns the name below a root of a file that lies anywhere, by its path with
	// slashes; false: the agent calls no file so. The name counts then too, where the lines
	// say that the file is the agent's.
	Below(path string) (name string, ok bool)
	// File says what a file is, given its name and its first line, nil if that is not known;
	// false: the agent calls no file so, or the line has to say whose it is and does not. An
	// agent whose names say everything does not look at the line.
	File(name string, first []byte) (File, bool)
	// Fold returns the state of a file whose lines it is told from the first one on.
	Fold(f File) Fold
}

// Recogniser is an Agent whose files are known by their lines, whatever their names are.
type Recogniser interface {
	// Recognises reports whether a file is the agent's, given with what it begins: its first
	// lines, or all of it. The last line may be cut off.
	Recognises(beginning []byte) bool
	// Renamed says what a file is that the agent would not call so, given its first line, as
	// File does for the others: it is of the session that the line names, or is called after
	// itself.
	Renamed(name string, first []byte) (File, bool)
}

// Named says what a file is, whatever it is called.
func Named(a Agent, name string, first []byte) (File, bool) {
	f, ok := a.File(name, first)
	if r, known := a.(Recogniser); !ok && known && len(first) > 0 {
		return r.Renamed(name, first)
	}
	return f, ok
}

// File is a file of a session.
type File struct {
	Name    string // relative to the root, with slashes
	Stem    string // names the file wherever it is moved to; ids of its lines begin with it
	Session string // the session's id in tally: claude/<project>/<id>
	Thread  string // in which its messages stand: Main, or agent/<id> for a sub-agent

	// Archived says that the agent has put the file away: its session is archived as long
	// as it lies there.
	Archived bool
}

// Fold is what is known of a file by the lines so far. It is small beside them.
type Fold interface {
	// Line says what the next line means. Its place is where it stands in the file. The
	// line has no end of line, and may be anything: blank, no JSON, several values.
	Line(at Span, line []byte) Meaning
	// Quiet says what follows from the fact that nothing has come for a while: ends of
	// turns, the last cost. More lines may come all the same. Its keys are none of the
	// last line's facts.
	Quiet() []Fact
}

// Span is a stretch of a file: bytes from Start to before End, ends of line included.
type Span struct{ Start, End int64 }

// Meaning is what a line says.
type Meaning struct {
	Session string    // whose line it is, where one file has lines of several; "": the file's
	Thread  string    // in which the line stands
	ID      string    // of the line itself, the same wherever it is copied; "": it has none
	Turn    string    // id of the message that it is or belongs to; "": none
	Time    time.Time // as the line says; zero: it does not
	Before  []Fact    // what happened before the line could be written: a rewind, the session's beginning, which every file of it says at its first line: the first one counts
	After   []Fact    // what follows from it
}

// Fact is an event that follows from a line, besides the line.
type Fact struct {
	Key      string         // tells the facts of one line apart, and is the same for the same line every time
	Time     time.Time      // zero: the line's
	Payload  events.Payload // without the offsets that Place stands for, and SessionCreated.CreatedAt if the line says no time
	Had      int            // of a ThreadReplaced: how many turns the thread has by this file alone, which is how its keep counts; see Fit
	Position *Position      // of SessionRewound.To, SessionCreated.Fork.Offset or SessionCreated.Parent.Offset; nil: none
}

// Place is the end of a line, which is an offset of the log for who has stored the lines.
type Position struct {
	Session string // the session whose line it is; "": this one, or if it has no such file, the one that has
	Stem    string // the file's; "": that of the session's newest file, this one left out
	End     int64  // where the line ends; 0: before all that the session has, what it inherits included
}
