package ingest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
)

// undecided is a session whose namespace is not decided yet. Only the jobs of the session use it.
type undecided struct {
	root    string                 // root of its first file
	batches []*tail.Batch          // of all its files, in order of arrival
	folds   map[string]agents.Fold // by stem
	origin  origin
	lines   int
	bytes   int64
}

// origin holds the data in a session's lines that decide its namespace.
type origin struct {
	cwd  string // the first one
	from string // the session that it continues or that started it
}

// note reads the data of a line.
func (o *origin) note(m agents.Meaning) {
	for _, fact := range slices.Concat(m.Before, m.After) {
		switch p := fact.Payload.(type) {
		case *events.SessionCreated:
			o.cwd = cmp.Or(o.cwd, p.CWD)
			if m.Session == "" {
				o.from = cmp.Or(o.from, startOf(p))
			}
		case *events.SessionUpdated:
			raw, _ := p.Set.Get(fieldCWD)
			if cwd, err := rawjson.String(raw); err == nil {
				o.cwd = cmp.Or(o.cwd, cwd)
			}
		}
	}
}

// CWDOf returns the folder of a session from the beginning of one of its files, in the same way as for Options.Route.
// It returns "" if the file names no folder before the first message.
func CWDOf(agent agents.Agent, f agents.File, beginning []byte) string {
	var o origin
	fold, at := agent.Fold(f), int64(0)
	for text := range bytes.Lines(beginning) {
		m := fold.Line(agents.Span{Start: at, End: at + int64(len(text))}, bytes.TrimRight(text, "\r\n"))
		at += int64(len(text))
		if o.note(m); o.cwd != "" || m.Thread != agents.Log {
			break
		}
	}
	return o.cwd
}

// startOf returns the session that another one continues, or that started it, or "".
func startOf(p *events.SessionCreated) string {
	switch {
	case p.Fork != nil:
		return p.Fork.Session
	case p.Parent != nil:
		return p.Parent.Session
	}
	return ""
}

// Total bound of lines that wait for a cwd. For one session the bounds of held lines apply. At a bound, the namespace
// is decided without a cwd.
const undecidedTotal = 16 << 20

// leftAlone marks declined sessions in place of a namespace. It is not a valid namespace.
const leftAlone = "!"

// isAlone reports whether a session is declined.
func (in *Ingester) isAlone(session string) bool {
	namespace, _ := in.home(session)
	return namespace == leftAlone
}

// home returns the namespace of a session, and whether it is decided.
func (in *Ingester) home(session string) (namespace string, isKnown bool) {
	if in.o.Route == nil {
		return in.o.Namespace, true
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	namespace, isKnown = in.homes[sumOf(session)]
	return cmp.Or(namespace, in.o.Namespace), isKnown
}

// subject returns a session in its namespace.
func (in *Ingester) subject(session string) events.Subject {
	namespace, _ := in.home(session)
	return events.Session(namespace, session)
}

// remember loads the namespaces of followed sessions from the state.
func (in *Ingester) remember() {
	for f, note := range in.tailer.Notes() {
		namespace, session := splitNote(note)
		if is, ok := in.sources[f.Root].Agent.File(f.Rel, nil); ok && session == "" {
			session = is.Session
		}
		if key := sumOf(session); session != "" && (namespace != "" || in.homes[key] == "") {
			in.settleIn(key, cmp.Or(namespace, in.o.Namespace))
		}
	}
}

// noteOf returns the state's note of a file. It holds the session, if the file's name does not imply it, after the
// namespace, if it is not the default one. A namespace contains no slash, and a session has one at the start.
func (in *Ingester) noteOf(f tail.File, is agents.File) string {
	note := ""
	if named, ok := in.sources[f.Root].Agent.File(f.Rel, nil); !ok || named.Session != is.Session {
		note = is.Session
	}
	if namespace, _ := in.home(is.Session); namespace != in.o.Namespace {
		note = namespace + "\n" + note
	}
	return note
}

func splitNote(note string) (namespace, session string) {
	namespace, session, ok := strings.Cut(note, "\n")
	if !ok || namespace != leftAlone && events.ValidateNamespace(namespace) != nil {
		return "", note
	}
	return namespace, session
}

// admit returns the batches of a session that can be processed after a batch arrived. If the session waits for a line
// that decides its namespace, it returns none. Such a line releases all.
func (in *Ingester) admit(ctx context.Context, b *tail.Batch, is agents.File) ([]*tail.Batch, error) {
	_, isKnown := in.home(is.Session)
	u := in.undecidedOf(is.Session)
	isFresh := (b.Kind == tail.Lines || b.Kind == tail.Rewritten) && !isKnown
	if u == nil && !isFresh || b.Kind == tail.Unreadable {
		return []*tail.Batch{b}, nil
	}
	if u == nil {
		u = &undecided{root: b.File.Root, folds: make(map[string]agents.Fold)}
	}
	in.keep(is.Session, u, b)
	if !isKnown && !in.reads(u, b, is) && !in.isTooMuch(u) {
		in.isDueIn(keyOf(b.File), in.o.Quiet)
		return nil, nil
	}
	return in.decided(ctx, is.Session)
}

func (in *Ingester) undecidedOf(session string) *undecided {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.undecided[session]
}

// keep adds a batch to the waiting ones of its session.
func (in *Ingester) keep(session string, u *undecided, b *tail.Batch) {
	size := sizeOf(b)
	u.batches, u.lines, u.bytes = append(u.batches, b), u.lines+len(b.Lines), u.bytes+size
	in.mu.Lock()
	defer in.mu.Unlock()
	in.undecided[session] = u
	in.status.undecided += size
}

func (in *Ingester) isTooMuch(u *undecided) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return u.lines > heldLines || u.bytes > heldBytes || in.status.undecided > undecidedTotal
}

// reads reads the lines of a batch up to the one that decides the namespace, and reports whether it found it. That is a
// line with a cwd, or a message, because agents that name their folder do so before. The end of a file that will not
// grow decides too.
func (in *Ingester) reads(u *undecided, b *tail.Batch, is agents.File) bool {
	fold := u.folds[is.Stem]
	if isFirst(b) || fold == nil {
		if len(b.Lines) > 0 && !isFirst(b) {
			return true // the log has the earlier lines in an unknown namespace
		}
		fold = in.sources[b.File.Root].Agent.Fold(is)
		u.folds[is.Stem] = fold
	}
	for _, read := range b.Lines {
		l := in.lineOf(read)
		m := fold.Line(l.Span, l.body)
		if u.origin.note(m); u.origin.cwd != "" || m.Thread != agents.Log {
			return true
		}
	}
	return b.End && (in.o.Once || in.o.now().Sub(b.Changed) >= in.o.Quiet)
}

// decided decides the namespace of a session from its lines so far, and returns the waiting batches.
func (in *Ingester) decided(ctx context.Context, session string) ([]*tail.Batch, error) {
	u := in.undecidedOf(session)
	if u == nil {
		return nil, nil
	}
	if _, isKnown := in.home(session); !isKnown {
		byCWD := in.namespaceOf(u.root, session, u.origin.cwd)
		if err := in.patiently(ctx, func() error { return in.decide(ctx, session, u.origin, byCWD) }); err != nil {
			return nil, err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.undecided, session)
	in.status.undecided -= u.bytes
	return u.batches, nil
}

// namespaceOf returns the namespace for sessions in a folder.
func (in *Ingester) namespaceOf(root, session, cwd string) string {
	namespace, taken := in.o.Route(root, cwd)
	switch {
	case !taken:
		return leftAlone
	case namespace == "":
		return in.o.Namespace
	}
	if err := events.ValidateNamespace(namespace); err != nil {
		reason := fmt.Sprintf("%v: the session is stored in %s", err, in.o.Namespace)
		in.onceBy(reason, Problem{Session: session, Reason: reason, Taken: true})
		return in.o.Namespace
	}
	return namespace
}

// decide sets the namespace of a session. The first decision stays.
func (in *Ingester) decide(ctx context.Context, session string, o origin, byCWD string) error {
	namespace, err := in.find(ctx, session, o, byCWD)
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if key := sumOf(session); in.homes[key] == "" {
		in.settleIn(key, namespace)
	}
	return nil
}

// settleIn sets the namespace of a session. The caller holds mu.
func (in *Ingester) settleIn(session textSum, namespace string) {
	if in.homes[session] == leftAlone {
		in.status.Alone--
	}
	if namespace == leftAlone {
		in.status.Alone++
	}
	in.homes[session] = namespace
}

// find returns the namespace where a session exists, else that of its origin, else that of its folder.
func (in *Ingester) find(ctx context.Context, session string, o origin, byCWD string) (string, error) {
	for _, id := range []string{session, o.from} {
		if id == "" {
			continue
		}
		namespace, isKnown := in.home(id)
		switch {
		case isKnown && (id == session || namespace != leftAlone):
			return namespace, nil
		case byCWD == leftAlone:
			return leftAlone, nil
		case byCWD == in.o.Namespace:
			continue
		}
		for _, namespace := range []string{byCWD, in.o.Namespace} {
			if isThere, err := in.isThere(ctx, events.Session(namespace, id)); isThere || err != nil {
				return namespace, err
			}
		}
	}
	return byCWD, nil
}

// isThere reports whether the log has a session. A session with damaged records exists.
func (in *Ingester) isThere(ctx context.Context, sub events.Subject) (bool, error) {
	_, err := in.o.Log.Last(ctx, sub)
	if err != nil && (isWait(err) || ctx.Err() != nil) {
		return false, err
	}
	return !errors.Is(err, log.ErrNotFound), nil
}

// decideBy decides the namespace of a session from the first line of a file, if possible, and reports whether it is
// decided now.
func (in *Ingester) decideBy(ctx context.Context, root string, is agents.File, head func() []byte) bool {
	if _, isKnown := in.home(is.Session); isKnown {
		return true
	}
	var o origin
	l := in.lineOf(tail.Line{Bytes: bytes.TrimRight(head(), "\r\n")})
	if o.note(in.sources[root].Agent.Fold(is).Line(l.Span, l.body)); o.cwd == "" {
		return false
	}
	return in.decide(ctx, is.Session, o, in.namespaceOf(root, is.Session, o.cwd)) == nil
}
