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

// Transcripts reads the sessions that Claude Code keeps in a folder of projects, where they
// are: nothing is imported, no store is opened, no network is used, and nothing is ever
// written. A folder or file that is not there is no session.
//
// What a line means for the log is told by package agents/claude; here a session is what a
// person reads of it: the messages, in the order of the file.
type Transcripts struct{ dir string }

// DirectFile is where the sessions of Transcripts come from.
const DirectFile = "direct: vendor file"

// TranscriptsOf returns a reader of a folder of projects, such as ~/.claude/projects. "" is the
// folder that Claude Code itself uses, by the environment.
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

// StoredProject is a project that has sessions.
type StoredProject struct {
	Key      string    // the name of its folder
	Path     string    // as its sessions say
	Guessed  bool      // none says; Path is what the folder's name may mean, which is not certain
	Sessions int       // files
	LastAt   time.Time // when one of them was written to
}

// StoredSession is a session as its file has it.
type StoredSession struct {
	ID             string
	Project        string    // path of the project; "": the file does not say
	Key            string    // the name of the project's folder
	File           string    // path of the file
	CreatedAt      time.Time // the earliest of any line; of a file without times, when it was written to
	LastAccessedAt time.Time // the latest; likewise
	Summary        string    // the last one
	GitBranch      string    // of the first message of the person
	Messages       int
	Lines          int    // of the file
	Corrupt        int    // lines that are no JSON objects, or go on with what is none; they are left out
	TooLong        int    // lines over MaxTranscriptLine, which are left out
	From           string // DirectFile

	cwd string // that was looked at last, while the file is read
}

// MaxTranscriptLine is the longest line that is read, in bytes. A longer one is passed over in
// bounded memory.
const MaxTranscriptLine = 32 << 20

// open opens the folder; nil if it is not there.
func (t *Transcripts) open() (*os.Root, error) {
	root, err := os.OpenRoot(t.dir)
	if t.dir == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return root, err
}

// pathOf returns the path of a file, by its name below the folder.
func (t *Transcripts) pathOf(name string) string {
	return filepath.Join(t.dir, filepath.FromSlash(name))
}

// transcriptFile is the transcript of a session.
type transcriptFile struct {
	key, id string
	name    string // below the folder of projects
	at      time.Time
}

// files lists the transcripts in the folders of projects that are wanted, by name. What is no
// regular file, such as a link to elsewhere, is none. The error names the folders that cannot
// be read.
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

// each calls do with each transcript of the folders that are wanted. A file that cannot be
// read does not keep the others from being read: the error names all of them. One that is
// gone meanwhile is no error.
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

// Projects lists the projects that have sessions, by folder and path. Two projects whose
// folder is the same are two. If a file cannot be read the error says which, and the list has
// what the others say.
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

// projectsOf makes a list of projects. Sessions that do not say where they were are those of
// the folder's one project, if there is one.
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

// maxHead is how many lines of a file are looked at for its project.
const maxHead = 200

// projectIn returns the path of the project that a transcript is of, as its first lines say,
// "" if they do not.
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

// projectBy returns the path of the project that an entry says it was begun in: that whose
// folder the file lies in. An agent may go elsewhere later.
func projectBy(key string, e transcriptEntry) string {
	if cwd := e.Text("cwd"); cwd != "" && VendorFolder(key, VendorKey(cwd)) {
		return cwd
	}
	return ""
}

// linesOf yields the lines of a file. One that is too long is a *lines.TooLongError in its
// place, and the rest goes on; any other error is the last one.
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

// Sessions lists the sessions of a project by its path, the one that was last active first.
// Links on the way there, and how characters are composed, do not matter; sessions of another
// project whose folder has the same name are not among them. If a file cannot be read the
// error says which, and the list has the others.
func (t *Transcripts) Sessions(ctx context.Context, project string) ([]StoredSession, error) {
	key := VendorKey(project)
	list, err := t.sessions(ctx, func(folder string) bool { return VendorFolder(folder, key) })
	return slices.DeleteFunc(list, func(s StoredSession) bool { return s.Project != "" && !samePath(s.Project, project) }), err
}

// SessionsIn lists the sessions in a folder of projects by its name, as Sessions does. If
// they are of several projects, they are all in the list.
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

// Latest returns the session of a project that was last active. If there is none, the error
// is [tally.ErrNotFound].
func (t *Transcripts) Latest(ctx context.Context, project string) (StoredSession, error) {
	list, err := t.Sessions(ctx, project)
	if len(list) > 0 {
		return list[0], nil
	}
	return StoredSession{}, cmp.Or(err, fmt.Errorf("sessions of %s: %w", project, tally.ErrNotFound))
}

// Session returns a session by its id, whichever project it is of. If there is none, or
// nothing is in it, the error is [tally.ErrNotFound].
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

// SessionOrLatest returns the session with an id, or where there is none the session of the
// project that was last active; exact says which it is.
func (t *Transcripts) SessionOrLatest(ctx context.Context, project, id string) (s StoredSession, exact bool, err error) {
	s, err = t.Session(ctx, id)
	if !errors.Is(err, tally.ErrNotFound) {
		return s, err == nil, err
	}
	s, err = t.Latest(ctx, project)
	return s, false, err
}

// File returns the path of the file of a vendor's session, [tally.ErrNotFound] if it is not
// there, or Claude Code is not the vendor. It makes Transcripts a [Local].
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

// named calls do with each transcript that has an id.
func (t *Transcripts) named(ctx context.Context, id string, do func(*os.Root, transcriptFile) error) error {
	return t.each(ctx, func(string) bool { return true }, func(root *os.Root, f transcriptFile) error {
		if f.id != id {
			return nil
		}
		return do(root, f)
	})
}

// read says what a transcript has. One without a message and without a summary is no session.
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

// add counts a line in.
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

// Messages yields the messages of a session, in the order of its file, as it is now. What
// lines are left out is counted in the session.
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

// isBlank reports whether a line has nothing in it.
func isBlank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }
