package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/projector"
)

// DocumentNames explains how documents are named, for help texts.
const DocumentNames = `A document is KIND/ID: the kind ends at the first slash, the id is all that follows.
It may be any bytes, and is taken as it is typed or as a list spells it.`

// NameOf formats the name of a document or a session as commands take it.
func NameOf(sub events.Subject) string { return sub.Kind + "/" + cli.ID(sub.ID) }

// Document returns the document with the name of an argument. If there is no such document, and the argument is the
// escaped form of an existing id, it returns that document.
func Document(ctx context.Context, st *tally.Store, arg string) (events.Subject, error) {
	doc, err := documentNamed(st.Namespace(), arg)
	if err != nil {
		return doc, err
	}
	id, bad := events.UnescapeID(doc.ID)
	if bad != nil || id == doc.ID {
		return doc, nil
	}
	if has, err := isWritten(ctx, st, doc); has || err != nil {
		return doc, err
	}
	other := events.Document(st.Namespace(), doc.Kind, id)
	if has, err := isWritten(ctx, st, other); !has || err != nil {
		return doc, err
	}
	return other, nil
}

// documentNamed parses KIND/ID.
func documentNamed(namespace, arg string) (events.Subject, error) {
	kind, id, ok := strings.Cut(arg, "/")
	if !ok {
		return events.Subject{}, cli.Usagef("%q is not the name of a document: want KIND/ID, such as doc/notes.md", arg)
	}
	doc := events.Document(namespace, kind, id)
	return doc, doc.Validate()
}

// isWritten reports whether a subject has records.
func isWritten(ctx context.Context, st *tally.Store, sub events.Subject) (bool, error) {
	_, err := st.Log.Last(ctx, sub)
	switch {
	case errors.Is(err, events.ErrNotFound):
		return false, nil
	case cli.Is[*events.DamageError](err):
		return true, nil
	}
	return err == nil, err
}

// DocumentAt returns the document that an argument names, and a position: the flag's value, or the suffix @REV, @TIME
// or #N of the argument. If a document with the whole argument as its name was ever written, the suffix is a part of
// its id.
func DocumentAt(ctx context.Context, st *tally.Store, arg, at string) (doc events.Subject, position string, err error) {
	if doc, err = Document(ctx, st, arg); err != nil || at != "" {
		return doc, at, err
	}
	if has, err := isWritten(ctx, st, doc); has || err != nil {
		return doc, "", err
	}
	i := strings.LastIndexAny(arg, "@#")
	if i < 0 {
		return doc, "", nil
	}
	for _, position := range []string{arg[i:], strings.TrimPrefix(arg[i:], "@")} {
		if _, bad := projector.ParsePosition(position); bad == nil {
			doc, err := Document(ctx, st, arg[:i])
			return doc, position, err
		}
	}
	return doc, "", nil
}

// Linkable parses the target of a link: KIND/ID, session/ID, or a subject as tally log prints it.
func Linkable(ctx context.Context, st *tally.Store, arg string) (events.Subject, error) {
	if strings.HasPrefix(arg, "document/") || strings.HasPrefix(arg, "session/") {
		return events.ParseSubject(st.Namespace(), arg)
	}
	return Document(ctx, st, arg)
}

// DocumentError adds an exit code and a hint to an error about a document.
func (a *App) DocumentError(ctx context.Context, st *tally.Store, doc events.Subject, err error) error {
	name, program := NameOf(doc), Program()
	if moved, ok := errors.AsType[*tally.DocumentConflictError](err); ok {
		return &cli.CodeError{Code: cli.Conflict, Err: err, Hint: movedHint(moved, name, program, a.StoreFlags())}
	}
	switch {
	case errors.Is(err, tally.ErrExists):
		return &cli.CodeError{Code: cli.Conflict, Err: fmt.Errorf("%w: nothing was written", err)}
	case !errors.Is(err, events.ErrNotFound) || cli.Is[*projector.PositionError](err):
		return err
	}
	missing := &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no document %s in namespace %s", name, st.Namespace()), Hint: program + " doc ls lists the documents."}
	if list, err := st.Documents().History(ctx, doc.Kind, doc.ID, 0, 1); projector.Tolerate(err) == nil && len(list) > 0 {
		missing.Err = fmt.Errorf("the document %s was deleted or has expired", name)
		missing.Hint = fmt.Sprintf("%s doc log%s %s shows what it was.", program, a.StoreFlags(), Quoted(name))
		if to, _, err := list[0].RenamedTo.Parse(st.Namespace()); err == nil && list[0].RenamedTo != "" {
			missing.Err = fmt.Errorf("the document %s was renamed: it is %s", name, NameOf(to))
		}
	}
	return missing
}

// movedHint returns a hint with the present revision of a document that has changed since the base.
func movedHint(e *tally.DocumentConflictError, name, program, flags string) string {
	if e.Have == 0 {
		return "There is no such document now: --create writes it."
	}
	hint := fmt.Sprintf("It is at %v now", e.Have)
	if e.SHA256 != "" {
		hint += ", SHA-256 " + e.SHA256
	}
	if e.Base == 0 {
		return hint + "."
	}
	return fmt.Sprintf("%s: %s doc diff%s %s %v %v shows what changed. Merge it, and write with --base %v.", hint, program, flags, Quoted(name), e.Base, e.Have, e.Have)
}

// Quoted returns a word in shell quotes, if it needs any.
func Quoted(word string) string {
	if word != "" && !strings.ContainsAny(word, " '\"$&;|*?()<>\\`#~!{}[]\t\n") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Base parses the offset of a revision. An empty text is offset 0.
func Base(flag, text string) (events.Offset, error) {
	if text == "" {
		return 0, nil
	}
	at, err := events.ParseOffset(text)
	if err != nil || at == 0 {
		return 0, cli.Usagef("--%s %q: want the offset of a revision, such as @12", flag, text)
	}
	return at, nil
}

// Until parses a time in the future: an RFC 3339 time or a beginning of it, or a duration from now, such as 90m, 24h,
// 7d or 2w. An empty text is the zero time.
func Until(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, ok := reads.Instant(text); ok {
		return at, nil
	}
	if at, ok := reads.Ago(strings.ToLower(strings.TrimSpace(text)), now); ok && !strings.HasPrefix(text, "-") {
		return now.Add(now.Sub(at)), nil
	}
	return time.Time{}, cli.Usagef("--%s %q: want a duration from now, such as 90m, 24h or 7d, or a time such as 2026-08-22T10:00Z", flag, text)
}
