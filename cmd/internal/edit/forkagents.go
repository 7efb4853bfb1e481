package edit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/agents/codex"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// resumable is the output of fork --as AGENT, with -o json.
type resumable struct {
	Session string      `json:"session"`
	Fork    events.Fork `json:"fork"`
	File    string      `json:"file"`
	Copied  bool        `json:"copied"`            // the file has copies of the lines, not a reference
	Resume  string      `json:"resume"`            // command that continues the session
	Untried bool        `json:"untried,omitempty"` // it was never tried whether the agent accepts the file
}

// writer writes a file with which an agent continues a session.
type writer struct {
	app   *cmdutil.App
	st    *tally.Store
	agent agents.Agent
	into  string // folder of the agent's sessions
	own   bool   // into is the agent's own folder

	handle *tally.Session
	state  *projector.Session // session at the position
	files  []ingest.Kept      // files in which the agent kept the session
}

// continued is the file to write.
type continued struct {
	session, id string // ids in tally and for the agent
	name        string // path below the folder
	content     []byte
	copied      bool
	resume      string
	untried     bool
}

// isAgent reports whether a word is the name of an agent or of its file format.
func isAgent(word string) bool {
	_, ok := cmdutil.AgentNamed(word)
	return ok
}

// isResumed reports whether fork can write files for an agent.
func isResumed(agent agents.Agent) bool {
	switch agent.(type) {
	case codex.Agent, claude.Agent:
		return true
	}
	return false
}

// forkAs writes a file with which an agent continues a session from a position.
func forkAs(ctx context.Context, a *cmdutil.App, st *tally.Store, handle *tally.Session, at, as, into string) error {
	agent, _ := cmdutil.AgentNamed(as)
	w := &writer{app: a, st: st, agent: agent, handle: handle}
	if err := w.place(into); err != nil {
		return err
	}
	if err := w.load(ctx, at); err != nil {
		return err
	}
	var c continued
	var err error
	switch agent.(type) {
	case codex.Agent:
		if err = w.toldTwice(ctx); err == nil {
			c, err = w.codex(ctx)
		}
	case claude.Agent:
		c, err = w.claude()
	default:
		return cli.Usagef("--as %s: only codex and claude-code can continue a fork", as)
	}
	if err != nil {
		return err
	}
	file := filepath.Join(w.into, filepath.FromSlash(c.name))
	if err := create(w.into, filepath.FromSlash(c.name), c.content); err != nil {
		return fmt.Errorf("%s is not written: %w", plain.Printable(file), err)
	}
	if err := w.follow(ctx, c.name); err != nil {
		return err
	}
	return w.say(c, file)
}

// place sets the folder of the agent's sessions.
func (w *writer) place(into string) (err error) {
	roots := w.agent.Roots(os.Getenv)
	w.own = into == ""
	switch {
	case into != "":
		w.into, err = filepath.Abs(into)
		return err
	case len(roots) == 0:
		return cli.Usagef("--into DIR is missing: the folder of %s's sessions is unknown", w.agent.Name())
	}
	w.into = filepath.FromSlash(roots[0])
	return nil
}

// load loads the session at the position. If a session is a fork in the store without own turns, it loads the session
// it was forked from.
func (w *writer) load(ctx context.Context, at string) (err error) {
	for {
		if w.state, err = w.handle.Load(ctx, at); err != nil {
			return err
		}
		if w.files, err = ingest.Files(ctx, w.st.Log, w.agent, events.Session(w.st.Namespace(), w.handle.ID())); err != nil {
			return err
		}
		fork := w.state.Ledger.Fork
		if len(w.files) > 0 || fork == nil || w.hasOwn(fork.Offset) {
			break
		}
		w.handle, at = w.st.Session(fork.Session), fork.Offset.String()
	}
	if len(w.files) == 0 {
		return &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("no line of %s came from %s", w.state.Subject.ID, w.agent.Name()),
			Hint: "An agent can only continue lines that it wrote itself. Without --as AGENT, fork creates a session in the store."}
	}
	return nil
}

// hasOwn reports whether the session has a turn in effect that it did not inherit.
func (w *writer) hasOwn(inherited events.Offset) bool {
	return slices.ContainsFunc(w.turns(), func(t projector.Turn) bool { return t.Offset > inherited })
}

// turns are the turns of the session's own file that are in effect, in their order.
func (w *writer) turns() []projector.Turn {
	list := slices.Concat(w.state.Threads.Turns(agents.Main), w.state.Threads.Turns(agents.Log))
	slices.SortStableFunc(list, func(a, b projector.Turn) int { return cmp.Compare(a.Offset, b.Offset) })
	return list
}

func (w *writer) lines() [][]byte {
	var list [][]byte
	for _, t := range w.turns() {
		list = append(list, slices.Concat(t.Raw, t.Bytes))
	}
	return list
}

// toldTwice moves the position after a repeated prompt. Codex writes a prompt on two lines, one for the model and one
// for the screen. If the position is between them, the screen would lack the prompt.
func (w *writer) toldTwice(ctx context.Context) error {
	turns := w.turns()
	if len(turns) == 0 {
		return nil
	}
	last := turns[len(turns)-1]
	for i := range w.files {
		offsets := w.files[i].Offsets()
		n := slices.Index(offsets, last.Offset) + 1
		if n == 0 || n == len(offsets) {
			continue
		}
		behind := *w
		var err error
		if behind.state, err = w.handle.Load(ctx, offsets[n].String()); err != nil {
			return err
		}
		more := behind.turns()
		isSame := func(a, b projector.Turn) bool { return a.Offset == b.Offset }
		if len(more) == len(turns)+1 && slices.EqualFunc(more[:len(turns)], turns, isSame) && codex.IsToldAgain(last.Raw, more[len(turns)].Raw) {
			w.state = behind.state
		}
		return nil
	}
	return nil
}

// codex returns a rollout file: a reference to the file that Codex has, else a copy.
func (w *writer) codex(ctx context.Context) (continued, error) {
	id, from := uuid.Must(uuid.NewV7()).String(), strings.TrimPrefix(w.handle.ID(), "codex/")
	home := ""
	if !w.own {
		home = "CODEX_HOME=" + quoted(w.into) + " "
	}
	c := continued{session: "codex/" + id, id: id, resume: home + "codex resume " + id}
	ref, err := w.reference(ctx)
	if err != nil {
		return c, err
	}
	if ref != nil {
		ref.Thread, ref.From, ref.Began = id, from, time.Now()
		c.name = ref.Name(time.Local)
		c.content, err = ref.Append(nil)
		return c, err
	}
	r := codex.Rollout{Thread: id, From: from, Began: time.Now(), Lines: w.lines()}
	c.name, c.copied = r.Name(time.Local), true
	c.content, err = r.Append(nil)
	return c, err
}

// reference returns a rollout as Codex itself forks: a reference to the beginning of a file. It returns nil if the
// turns in effect are not the beginning of one file, as after a rewind, or if Codex no longer has that file.
func (w *writer) reference(ctx context.Context) (*codex.Reference, error) {
	turns := w.turns()
	if len(turns) == 0 || slices.ContainsFunc(w.state.Ledger.Rewinds, func(r projector.Rewind) bool { return r.Reason != "source" || r.Undoes > 0 }) {
		return nil, nil
	}
	last := turns[len(turns)-1]
	for i := range w.files {
		f := &w.files[i]
		at, ok := f.Line(last.Offset)
		if !ok {
			continue
		}
		first := w.firstOf(f, turns)
		if first == nil || f.Generations > 0 || !codex.IsReferable(first) || len(last.Raw) == 0 || !w.isWhole(f, turns) {
			return nil, nil
		}
		if there, err := w.isThere(ctx, f, at.End, first); !there || err != nil {
			return nil, err
		}
		return &codex.Reference{First: first, Stem: f.Stem, Last: last.Raw, End: at.End}, nil
	}
	return nil, nil
}

// firstOf returns the first line of a file, nil if it is not in effect.
func (w *writer) firstOf(f *ingest.Kept, turns []projector.Turn) []byte {
	i := slices.IndexFunc(turns, func(t projector.Turn) bool { return t.Offset == f.Offsets()[0] })
	if i < 0 {
		return nil
	}
	return turns[i].Raw
}

// isWhole reports whether the turns in effect are all lines of a file up to the position, and no others.
func (w *writer) isWhole(f *ingest.Kept, turns []projector.Turn) bool {
	live := make(map[events.Offset]bool)
	for _, t := range turns {
		live[t.Offset] = true
	}
	for _, at := range f.Offsets() {
		if at <= w.state.Offset() && !live[at] {
			return false
		}
		delete(live, at)
	}
	for i := range w.files {
		for _, at := range w.files[i].Offsets() {
			delete(live, at)
		}
	}
	for at := range live {
		if at >= w.state.History.First() {
			return false
		}
	}
	return true
}

// isThere reports whether the agent's folder has the file with the same bytes as the log, and all files that it
// continues.
func (w *writer) isThere(ctx context.Context, f *ingest.Kept, upto int64, first []byte) (bool, error) {
	disk, err := openIn(w.into, filepath.FromSlash(f.Name))
	if err != nil {
		return false, nil //nolint:nilerr // an unreadable file differs from the log
	}
	defer disk.Close()
	c := &compared{disk: disk, left: upto}
	if err := f.Write(ctx, c); err != nil && !errors.Is(err, errCompared) {
		return false, err
	}
	if c.left > 0 || c.differs {
		return false, nil
	}
	return w.hasBases(codex.Base(first))
}

// compared is a writer that compares its input with the beginning of a file.
type compared struct {
	disk    io.Reader
	left    int64
	differs bool
}

var errCompared = errors.New("compared")

// Write implements io.Writer.
func (c *compared) Write(p []byte) (int, error) {
	n := int(min(c.left, int64(len(p))))
	have := make([]byte, n)
	_, err := io.ReadFull(c.disk, have)
	c.differs = c.differs || err != nil || !bytes.Equal(have, p[:n])
	if c.left -= int64(n); c.left == 0 || c.differs {
		return n, errCompared
	}
	return len(p), nil
}

// hasBases reports whether the folder has the file with a stem, and all files that it continues.
func (w *writer) hasBases(stem string) (bool, error) {
	if stem == "" {
		return true, nil
	}
	stems := make(map[string]string)
	err := filepath.WalkDir(w.into, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // an unreadable file counts as missing
		}
		name, err := filepath.Rel(w.into, path)
		if is, ok := w.agent.File(filepath.ToSlash(name), nil); ok && err == nil {
			stems[is.Stem] = path
		}
		return nil
	})
	for n := 0; err == nil && stem != "" && stems[stem] != "" && n <= len(stems); n++ {
		var first []byte
		if first, err = firstLine(stems[stem]); err == nil {
			stem = codex.Base(first)
		}
	}
	return stem == "", err
}

// firstLine reads the first line of a file.
func firstLine(path string) ([]byte, error) {
	const most = 4 << 20
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	first, _, _ := bytes.Cut(b, []byte("\n"))
	return first, err
}

// claude returns a transcript file, which is a copy.
func (w *writer) claude() (continued, error) {
	_, rest, _ := strings.Cut(w.handle.ID(), "/")
	slash := max(strings.LastIndexByte(rest, '/'), 0)
	project, from := rest[:slash], strings.TrimPrefix(rest[slash:], "/")
	t := claude.Transcript{Session: uuid.NewString(), From: from, Lines: w.lines()}
	name, err := t.Name(project)
	if err != nil {
		return continued{}, &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("session %s: %w", cli.ID(w.handle.ID()), err),
			Hint: "Claude Code keeps a session in the folder of its project, which is the middle of the session's id. Nothing was written."}
	}
	content, err := t.Append(nil)
	home := ""
	if !w.own {
		home = "CLAUDE_CONFIG_DIR=" + quoted(filepath.Dir(w.into)) + " "
	}
	if cwd := w.state.Ledger.Text("cwd"); cwd != "" {
		home = "cd " + quoted(cwd) + " && " + home
	}
	return continued{session: "claude/" + project + "/" + t.Session, id: t.Session, name: name, content: content, copied: true,
		resume: home + "claude --resume " + t.Session, untried: true}, err
}

// quoted returns a word in shell quotes, if it needs any.
func quoted(word string) string {
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-+:@%=") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// openIn opens a regular file below a folder. The name comes from an event, so the folder is not left.
func openIn(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	return root.Open(name)
}

// create creates a file below a folder. The name comes from a session id and the folder may contain links, so the
// folder is not left. An existing file is an error.
func create(dir, name string, content []byte) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		err = errors.Join(err, root.Remove(name))
	}
	return err
}

// follow imports the new file into the store, as tally watch would.
func (w *writer) follow(ctx context.Context, name string) error {
	files := cmdutil.AgentFiles{Agent: w.agent, Root: w.into, Below: name}
	var problems []error
	in, err := ingest.New(ingest.Options{Log: w.st.Log, Namespace: w.st.Namespace(), Sources: []ingest.Source{{Agent: files.Only(), Root: w.into}}, Once: true,
		Report: func(p ingest.Problem) { problems = append(problems, errors.New(p.String())) }})
	if err != nil {
		return err
	}
	err = errors.Join(in.Run(ctx), in.Close())
	return errors.Join(append(problems, err)...)
}

func (w *writer) say(c continued, file string) error {
	at := events.Fork{Session: w.handle.ID(), Offset: w.state.Offset()}
	if w.app.Format != cli.Text {
		return cli.WriteJSON(w.app.Out, w.app.Format, resumable{cli.ID(c.session), at, file, c.copied, c.resume, c.untried})
	}
	how := "a reference to its file"
	if c.copied {
		how = "a copy"
	}
	if err := w.app.Say("%s begins as %s was at %v, with %s: %s, in %s.", cli.ID(c.session), cli.ID(w.handle.ID()), at.Offset,
		plain.Count(len(w.state.Threads.Turns(agents.Main)), "turn"), how, plain.Printable(file)); err != nil {
		return err
	}
	if c.untried {
		fmt.Fprintf(w.app.Err, "Whether %s can continue it was not tried.\n", w.agent.Format())
	}
	return w.app.Say("Go on with: %s", plain.Printable(c.resume))
}
