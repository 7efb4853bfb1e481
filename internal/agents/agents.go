// Package agents describes the session files of coding agents.
//
// An [Agent] knows where its files are and which session a file belongs to. Its [Fold] returns for each line the
// thread of the line and the facts that follow from it. All of it is pure: it opens no file and reads no clock, and
// the same lines have the same result on every machine. Package ingest follows the files and appends the results.
//
// The line itself is always kept as it is, whether or not it is understood. So a fold never fails: a line of unknown
// meaning goes to the thread [Log].
package agents

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Project returns the name of the project of a session: the last part of the repository's address, if it is known,
// else of the folder. It accepts the paths of any system, so that a project has one name in all agents.
func Project(repository, folder string) string {
	for _, path := range []string{strings.TrimSuffix(strings.TrimRight(repository, "/"), ".git"), strings.TrimRight(folder, `/\`)} {
		if name := path[strings.LastIndexAny(path, `/\:`)+1:]; name != "" {
			return name
		}
	}
	return ""
}

// Threads of an agent's session.
const (
	Main = events.MainThread // messages of the user and the model
	Log  = events.LogThread  // every other line of the session's own file
)

// Agent is a program that keeps its sessions in files of lines.
type Agent interface {
	// Name returns the agent's short name, for ids and the command line: claude.
	Name() string
	// Format returns the name of the layout of its files: claude-code.
	Format() string
	// Roots returns the folders of its sessions, computed from environment variables. They need not exist.
	Roots(env func(string) string) []string
	// Wants reports whether a file may have lines of a session. The name is relative to a root, with slashes.
	Wants(name string) bool
	// Below returns the name below a root for a file outside of the roots. path has slashes. It returns false if the
	// agent has no such file names. If the lines show that the file is the agent's, the name counts anyway.
	Below(path string) (name string, ok bool)
	// File describes a file by its name and its first line, nil if that is unknown. It returns false if the agent has
	// no such file names, or if the session is named only in the line, and the line lacks it. An agent with complete
	// file names ignores the line.
	File(name string, first []byte) (File, bool)
	// Fold returns the state of a file before its first line. The caller passes all lines to it, from the first one
	// on.
	Fold(f File) Fold
}

// Recogniser is an Agent that recognises its files by their lines, whatever their names are.
type Recogniser interface {
	// Recognises reports whether a file is the agent's. beginning has its first lines, or all of it; the last line may
	// be cut off.
	Recognises(beginning []byte) bool
	// Renamed describes a file whose name is not one of the agent's, by its first line. The file belongs to the
	// session that the line names, or else to a session named after the file.
	Renamed(name string, first []byte) (File, bool)
}

// Named describes a file of any name.
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
	Stem    string // identifies the file wherever it is moved to; ids of its lines begin with it
	Session string // the session's id in tally: claude/<project>/<id>
	Thread  string // of its messages: Main, or agent/<id> for a sub-agent

	// Archived reports that the agent has archived the file. As long as it does, tally archives the session.
	Archived bool
}

// Fold is the state of a file after the lines so far. It is much smaller than the lines.
type Fold interface {
	// Line returns the meaning of the next line. at is its position in the file. The line has no end of line. It may
	// be blank, invalid JSON, or several values.
	Line(at Span, line []byte) Meaning
	// Quiet returns the facts that follow if no line came for a while: ends of turns, the last cost. More lines may
	// still come. The keys differ from those of the last line's facts.
	Quiet() []Fact
}

// Span is a range of a file: bytes from Start to before End, ends of line included.
type Span struct{ Start, End int64 }

// Meaning is the meaning of a line.
type Meaning struct {
	Session string    // session of the line, in a file with lines of several sessions; "": the file's
	Thread  string    // thread of the line
	ID      string    // id of the line itself, the same in every copy; "": none
	Turn    string    // id of the message that the line is or belongs to; "": none
	Time    time.Time // time in the line; zero: none
	Before  []Fact    // events before the line, such as a rewind. The first line of each file has the session's beginning; the first one counts
	After   []Fact    // events after the line
}

// Fact is an event that follows from a line, besides the line itself.
type Fact struct {
	Key      string         // distinguishes the facts of one line; constant for the line
	Time     time.Time      // zero: the time of the line
	Payload  events.Payload // without the offsets that Position stands for; without SessionCreated.CreatedAt if the line has no time
	Had      int            // for a ThreadReplaced: number of turns of the thread in this file, to which its keep refers; see Fit
	Position *Position      // stands for SessionRewound.To, SessionCreated.Fork.Offset or SessionCreated.Parent.Offset; nil: none
}

// Position names a line by the byte where it ends. The ingester maps it to a log offset.
type Position struct {
	Session string // session of the line; "": this one, or, if it has no such file, the session that has it
	Stem    string // Stem of the file; "": the newest other file of the session
	End     int64  // end of the line in bytes; 0: before everything in the session, including inherited records
}
