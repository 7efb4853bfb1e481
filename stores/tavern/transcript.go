package tavern

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/disk/lines"
)

// Transcripts reads the sessions in Claude Code's folder of projects. It imports nothing, opens no store, uses no
// network, and never writes. A missing folder or file has no sessions.
//
// Package agents/claude defines the meaning of lines for the log. Here a session is what a person reads: the messages,
// in the order of the file.
type Transcripts struct{ dir string }

// DirectFile is the source of the sessions of Transcripts.
const DirectFile = "direct: vendor file"

// TranscriptsOf returns a reader of a folder of projects, such as ~/.claude/projects. "" is the folder that Claude Code
// itself uses, by the environment.
func TranscriptsOf(dir string) *Transcripts {
	for _, root := range (claude.Agent{}).Roots(os.Getenv) {
		if dir != "" {
			break
		}
		if _, err := os.Stat(root); err == nil {
			dir = root
		}
	}
	return &Transcripts{dir}
}

// StoredProject is a project with sessions.
type StoredProject struct {
	Key      string    // the name of its folder
	Path     string    // from its sessions
	Guessed  bool      // no session names a path; Path is a guess from the folder's name
	Sessions int       // files
	LastAt   time.Time // when one of them was last modified
}

// StoredSession is a session as in its file.
type StoredSession struct {
	ID             string
	Project        string    // path of the project; "": the file has none
	Key            string    // the name of the project's folder
	File           string    // path of the file
	CreatedAt      time.Time // the earliest time of a line; if no line has a time, the file's modification time
	LastAccessedAt time.Time // the latest time; likewise
	Summary        string    // the last one
	GitBranch      string    // of the person's first message
	Messages       int
	Lines          int    // of the file
	Corrupt        int    // lines that are not JSON objects, or continue after one with something else; skipped
	TooLong        int    // lines over MaxTranscriptLine; skipped
	From           string // DirectFile

	cwd string // the last one seen, while the file is read
}

// MaxTranscriptLine is the longest line that is read, in bytes. Longer lines are skipped in bounded memory.
const MaxTranscriptLine = 32 << 20

// open opens the folder. It returns nil if the folder does not exist.
func (t *Transcripts) open() (*os.Root, error) {
	root, err := os.OpenRoot(t.dir)
	if t.dir == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return root, err
}

// pathOf returns the path of a file from its name below the folder.
func (t *Transcripts) pathOf(name string) string {
	return filepath.Join(t.dir, filepath.FromSlash(name))
}

// transcriptFile is the transcript of a session.
type transcriptFile struct {
	key, id string
	name    string // below the folder of projects
	at      time.Time
}

// files lists the transcripts in the wanted folders of projects, sorted by name. It skips everything but regular files,
// such as links. The error names the folders that cannot be read.
func (t *Transcripts) files(root *os.Root, wanted func(key string) bool) (list []transcriptFile, unread error) {
	folders, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		if !folder.IsDir() || !wanted(folder.Name()) {
			continue
		}
		entries, err := fs.ReadDir(root.FS(), folder.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("transcripts: %w", err))
			continue
		}
		for _, e := range entries {
			name := path.Join(folder.Name(), e.Name())
			of, ok := claude.Agent{}.File(name, nil)
			info, err := e.Info()
			if ok && of.Thread == agents.Main && err == nil && info.Mode().IsRegular() {
				list = append(list, transcriptFile{folder.Name(), strings.TrimSuffix(e.Name(), ".jsonl"), name, info.ModTime()})
			}
		}
	}
	return list, unread
}

// each calls do with each transcript of the wanted folders. If a file cannot be read, each goes on with the others, and
// the error names all such files. A file that was removed meanwhile is not an error.
func (t *Transcripts) each(ctx context.Context, wanted func(key string) bool, do func(*os.Root, transcriptFile) error) error {
	root, err := t.open()
	if root == nil || err != nil {
		return err
	}
	defer root.Close()
	list, all := t.files(root, wanted)
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := do(root, f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, fmt.Errorf("transcript %s: %w", t.pathOf(f.name), err))
		}
	}
	return all
}

// Projects lists the projects with sessions, sorted by folder and path. Two projects with the same folder are two
// entries. If files cannot be read, the error names them, and the list is based on the others.
func (t *Transcripts) Projects(ctx context.Context) ([]StoredProject, error) {
	found := make(map[[2]string]*StoredProject)
	err := t.each(ctx, func(string) bool { return true }, func(root *os.Root, f transcriptFile) error {
		where, err := projectIn(ctx, root, f)
		if err != nil {
			return err
		}
		p := found[[2]string{f.key, where}]
		if p == nil {
			p = &StoredProject{Key: f.key, Path: where}
			found[[2]string{f.key, where}] = p
		}
		p.Sessions++
		p.LastAt = later(p.LastAt, f.at)
		return nil
	})
	return projectsOf(found), err
}

// projectsOf makes a list of projects. If a folder has only one project, sessions without a path belong to it.
func projectsOf(found map[[2]string]*StoredProject) (list []StoredProject) {
	known := make(map[string][]*StoredProject)
	for _, p := range found {
		if p.Path != "" {
			known[p.Key] = append(known[p.Key], p)
		}
	}
	for _, p := range found {
		if p.Path != "" {
			continue
		}
		if named := known[p.Key]; len(named) == 1 {
			named[0].Sessions += p.Sessions
			named[0].LastAt = later(named[0].LastAt, p.LastAt)
			continue
		}
		p.Path, p.Guessed = strings.ReplaceAll(p.Key, "-", "/"), true
		known[p.Key] = append(known[p.Key], p)
	}
	for _, of := range known {
		for _, p := range of {
			list = append(list, *p)
		}
	}
	slices.SortFunc(list, func(a, b StoredProject) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Path, b.Path))
	})
	return list
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// maxHead is how many lines of a file are read to find its project.
const maxHead = 200

// projectIn returns the path of a transcript's project, from its first lines, or "".
func projectIn(ctx context.Context, root *os.Root, f transcriptFile) (string, error) {
	n := 0
	for line, err := range linesOf(ctx, root, f.name) {
		if err != nil {
			if isLong(err) {
				continue
			}
			return "", err
		}
		for _, e := range entriesOf(line) {
			if cwd := projectBy(f.key, e); cwd != "" {
				return cwd, nil
			}
		}
		if n++; n == maxHead {
			break
		}
	}
	return "", nil
}

// projectBy returns the path of the project in which an entry was written, if the file lies in that project's folder.
// An agent may change its directory later.
func projectBy(key string, e transcriptEntry) string {
	if cwd := e.Text("cwd"); cwd != "" && VendorFolder(key, VendorKey(cwd)) {
		return cwd
	}
	return ""
}

// linesOf yields the lines of a file. For a line that is too long it yields a *lines.TooLongError and goes on; any
// other error is the last one.
func linesOf(ctx context.Context, root *os.Root, name string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := root.Open(name)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		for r := lines.NewReader(f, MaxTranscriptLine); ; {
			if r.Line()%1024 == 0 && ctx.Err() != nil {
				yield(nil, ctx.Err())
				return
			}
			line, err := r.Next()
			if errors.Is(err, lines.ErrEnd) || !yield(line, err) || err != nil && !isLong(err) {
				return
			}
		}
	}
}

func isLong(err error) bool {
	_, long := errors.AsType[*lines.TooLongError](err)
	return long
}

// Sessions lists the sessions of a project by its path, the last active first. Links in the path and the composition of
// characters do not matter. Sessions of another project in the same folder are left out. If files cannot be read, the
// error names them, and the list has the others.
func (t *Transcripts) Sessions(ctx context.Context, project string) ([]StoredSession, error) {
	key := VendorKey(project)
	list, err := t.sessions(ctx, func(folder string) bool { return VendorFolder(folder, key) })
	return slices.DeleteFunc(list, func(s StoredSession) bool { return s.Project != "" && !samePath(s.Project, project) }), err
}

// SessionsIn lists the sessions in a folder of projects, as Sessions does. If the folder has several projects, the list
// has the sessions of all.
func (t *Transcripts) SessionsIn(ctx context.Context, key string) ([]StoredSession, error) {
	return t.sessions(ctx, func(folder string) bool { return folder == key })
}

func (t *Transcripts) sessions(ctx context.Context, wanted func(key string) bool) ([]StoredSession, error) {
	var list []StoredSession
	err := t.each(ctx, wanted, func(root *os.Root, f transcriptFile) error {
		s, there, err := t.read(ctx, root, f)
		if there && err == nil {
			list = append(list, s)
		}
		return err
	})
	slices.SortFunc(list, func(a, b StoredSession) int {
		return cmp.Or(b.LastAccessedAt.Compare(a.LastAccessedAt), strings.Compare(a.ID, b.ID))
	})
	return list, err
}

// Latest returns a project's last active session. If the project has no session, the error is [tally.ErrNotFound].
func (t *Transcripts) Latest(ctx context.Context, project string) (StoredSession, error) {
	list, err := t.Sessions(ctx, project)
	if len(list) > 0 {
		return list[0], nil
	}
	return StoredSession{}, cmp.Or(err, fmt.Errorf("sessions of %s: %w", project, tally.ErrNotFound))
}

// Session returns a session of any project by its id. If the session does not exist or is empty, the error is
// [tally.ErrNotFound].
func (t *Transcripts) Session(ctx context.Context, id string) (s StoredSession, err error) {
	there := false
	err = t.named(ctx, id, func(root *os.Root, f transcriptFile) (err error) {
		if !there {
			s, there, err = t.read(ctx, root, f)
		}
		return err
	})
	if !there && err == nil {
		err = fmt.Errorf("transcript of session %q: %w", id, tally.ErrNotFound)
	}
	return s, err
}

// SessionOrLatest returns the session with an id. If it does not exist, SessionOrLatest returns the project's last
// active session, with exact false.
func (t *Transcripts) SessionOrLatest(ctx context.Context, project, id string) (s StoredSession, exact bool, err error) {
	s, err = t.Session(ctx, id)
	if !errors.Is(err, tally.ErrNotFound) {
		return s, err == nil, err
	}
	s, err = t.Latest(ctx, project)
	return s, false, err
}

// File returns the path of the file of a vendor's session. If the file does not exist or the vendor is not Claude Code,
// the error is [tally.ErrNotFound]. Transcripts is a [Local].
func (t *Transcripts) File(ctx context.Context, b events.Binding) (name string, err error) {
	if b.Vendor == (claude.Agent{}).Name() {
		err = t.named(ctx, b.ID, func(_ *os.Root, f transcriptFile) error {
			name = t.pathOf(f.name)
			return nil
		})
	}
	if name == "" && err == nil {
		err = fmt.Errorf("%s session %q: %w", b.Vendor, b.ID, tally.ErrNotFound)
	}
	return name, err
}

// named calls do with each transcript with an id.
func (t *Transcripts) named(ctx context.Context, id string, do func(*os.Root, transcriptFile) error) error {
	return t.each(ctx, func(string) bool { return true }, func(root *os.Root, f transcriptFile) error {
		if f.id != id {
			return nil
		}
		return do(root, f)
	})
}

// read reads a transcript's session. A file without a message and without a summary is not a session.
func (t *Transcripts) read(ctx context.Context, root *os.Root, f transcriptFile) (s StoredSession, there bool, err error) {
	s = StoredSession{ID: f.id, Key: f.key, File: t.pathOf(f.name), From: DirectFile}
	for line, err := range linesOf(ctx, root, f.name) {
		if err != nil && !isLong(err) {
			return s, false, err
		}
		s.Lines++
		if err != nil {
			s.TooLong++
			continue
		}
		s.add(line)
	}
	s.cwd = ""
	if s.LastAccessedAt.IsZero() {
		s.CreatedAt, s.LastAccessedAt = f.at, f.at
	}
	return s, s.Messages > 0 || s.Summary != "", nil
}

// add adds a line to the session's numbers.
func (s *StoredSession) add(line []byte) {
	list, corrupt := parseLine(line)
	if corrupt {
		s.Corrupt++
	}
	for _, e := range list {
		if at := e.time(); !at.IsZero() {
			if s.CreatedAt.IsZero() || at.Before(s.CreatedAt) {
				s.CreatedAt = at
			}
			s.LastAccessedAt = later(s.LastAccessedAt, at)
		}
		if cwd := e.Text("cwd"); s.Project == "" && cwd != s.cwd {
			s.cwd, s.Project = cwd, projectBy(s.Key, e)
		}
		if e.Text("type") == "summary" {
			s.Summary = cmp.Or(e.Text("summary"), s.Summary)
		}
		if e.role() == "" || e.Text("uuid") == "" {
			continue
		}
		s.Messages++
		if s.GitBranch == "" && roleOf(e.role()) == RoleUser {
			s.GitBranch = e.Text("gitBranch")
		}
	}
}

// Messages yields the messages of a session, in the order of its file, as it is now. The session counts skipped lines.
func (t *Transcripts) Messages(ctx context.Context, s StoredSession) iter.Seq2[StoredMessage, error] {
	return func(yield func(StoredMessage, error) bool) {
		name := path.Join(s.Key, s.ID+".jsonl")
		root, err := t.open()
		if root == nil && err == nil {
			err = fs.ErrNotExist
		}
		if err != nil {
			yield(StoredMessage{}, fmt.Errorf("transcript %s: %w", t.pathOf(name), err))
			return
		}
		defer root.Close()
		info, err := root.Lstat(name)
		if err == nil && !info.Mode().IsRegular() {
			err = fs.ErrNotExist
		}
		if err != nil {
			yield(StoredMessage{}, fmt.Errorf("transcript %s: %w", t.pathOf(name), err))
			return
		}
		for line, err := range linesOf(ctx, root, name) {
			if isLong(err) {
				continue
			}
			if err != nil {
				yield(StoredMessage{}, fmt.Errorf("transcript %s: %w", t.pathOf(name), err))
				return
			}
			for m := range ParseTranscriptLine(line) {
				if m.Timestamp.IsZero() {
					m.Timestamp = info.ModTime()
				}
				m.SessionID = cmp.Or(m.SessionID, s.ID)
				if !yield(m, nil) {
					return
				}
			}
		}
	}
}

// isBlank reports whether a line is empty or white space.
func isBlank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }
