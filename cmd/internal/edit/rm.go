package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/log"
)

// removed is the output of doc rm, with -o json.
type removed struct {
	Kind   string        `json:"kind"`
	ID     string        `json:"id"`
	Offset events.Offset `json:"offset,omitempty"` // of the deletion
	Purged bool          `json:"purged"`

	Receipt string `json:"receipt,omitempty"` // of the erasure; absent: nobody can change the records
}

func newRm(a *cmdutil.App) *cobra.Command {
	r := &remover{app: a}
	cmd := &cobra.Command{
		Use: "rm KIND/ID", Short: "Delete a document, or purge it with all its revisions", Args: cobra.ExactArgs(1),
		Long: `Delete a document. Its revisions stay in the log: doc log lists them, doc cat KIND/ID#N
prints one, and doc put --create creates the document again. With --base @N it is deleted
only if @N is its latest revision; otherwise the exit code is 6. Without --base the command
asks for confirmation.

--purge removes a document, or a deleted document, with every revision, also those under
earlier names. They can no longer be read, listed or exported. The command asks for
confirmation. The bytes are removed from the store's files, as by tally forget; on a server
that others run they stay.

` + cmdutil.DocumentNames,
		Example: cmdutil.Examples("tally doc rm doc/specs/store.md --base @12", "tally doc rm note/today -y --reason 'done with it'", "tally doc rm note/secret --purge -y"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.at, err = cmdutil.Base("base", r.base); err != nil {
				return err
			}
			if r.purge && r.reason != "" {
				return cli.Usagef("--reason cannot be used with --purge")
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return r.rm(cmd.Context(), st, args[0]) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.base, "base", "", "offset of the latest revision, such as @12")
	f.BoolVar(&r.purge, "purge", false, "remove every revision for good")
	f.StringVar(&r.reason, "reason", "", "reason, stored in the log")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

type remover struct {
	app          *cmdutil.App
	base, reason string
	at           events.Offset
	purge, yes   bool
}

func (r *remover) rm(ctx context.Context, st *tally.Store, name string) error {
	doc, err := cmdutil.Document(ctx, st, name)
	if err != nil {
		return err
	}
	docs := st.Documents()
	list, err := docs.History(ctx, doc.Kind, doc.ID, 0, 1)
	if err != nil || list[0].Deleted && !r.purge {
		return r.app.DocumentError(ctx, st, doc, orMissing(doc, err))
	}
	have := list[0].Offset
	if r.purge && r.at > 0 && have != r.at {
		return r.app.DocumentError(ctx, st, doc, &tally.DocumentConflictError{Subject: doc, Base: r.at, Have: have})
	}
	if err := r.confirm(doc, have); err != nil {
		return err
	}
	gone := removed{Kind: doc.Kind, ID: cli.ID(doc.ID), Purged: r.purge}
	if r.purge {
		if err = docs.Purge(ctx, doc.Kind, doc.ID); err == nil {
			gone.Receipt, err = r.forget(ctx, st, doc)
		}
	} else {
		var ack log.Ack
		ack, err = docs.Delete(ctx, doc.Kind, doc.ID, cmp.Or(r.at, have), r.reason)
		gone.Offset = ack.Last
	}
	switch {
	case err != nil:
		return r.app.DocumentError(ctx, st, doc, err)
	case r.app.Format != cli.Text:
		return cli.WriteJSON(r.app.Out, r.app.Format, gone)
	case r.purge && gone.Receipt != "":
		return r.app.Say("Purged %s, and removed its bytes from the store. Receipt %s (tally doc cat receipt/%s).", cmdutil.NameOf(doc), gone.Receipt, gone.Receipt)
	case r.purge:
		return r.app.Say("Purged %s: it can no longer be read. Its bytes stay in the files of the log.", cmdutil.NameOf(doc))
	}
	return r.app.Say("Deleted %s, at %v. Its revisions can still be read.", cmdutil.NameOf(doc), gone.Offset)
}

// forget removes what a purged document had from the store, if a process can. A file of an agent keeps its bytes, because
// work needs it.
func (r *remover) forget(ctx context.Context, st *tally.Store, doc events.Subject) (receipt string, err error) {
	said, err := st.Forget(ctx, tally.Forget{Document: doc.String(), Reason: "purged"})
	if errors.Is(err, errors.ErrUnsupported) || cli.Is[*tally.KindError](err) {
		return "", nil
	}
	return said.ID, err
}

// orMissing returns err, or if it is nil an error for a missing document.
func orMissing(doc events.Subject, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", doc, events.ErrNotFound)
}

// confirm asks for confirmation, unless the command line names the revision.
func (r *remover) confirm(doc events.Subject, at events.Offset) error {
	if !r.purge && r.at > 0 {
		return nil
	}
	question, hint := "Delete %s, which is at %v?", "Name the revision with --base, or add -y to confirm."
	if r.purge {
		question, hint = "Purge %s, which is at %v, and every revision of it, for good?", "Add -y to confirm."
	}
	err := r.app.Confirm(r.yes, fmt.Sprintf(question, plain.Printable(cmdutil.NameOf(doc)), at))
	if refused, ok := errors.AsType[*cli.CodeError](err); ok && refused.Code == cli.BadUsage {
		refused.Hint = hint
	}
	return err
}

func newMv(a *cmdutil.App) *cobra.Command {
	var base string
	cmd := &cobra.Command{
		Use: "mv KIND/ID NEWID", Short: "Rename a document", Args: cobra.ExactArgs(2),
		Long: `Rename a document within its kind. Its history, the links to it and a lease on it follow. The
rename is atomic: at any time the document has exactly one name. If a document with the new
id exists, the exit code is 6.

NEWID may include the kind, as KIND/ID. With --base @N the document is renamed only if @N is
its latest revision; otherwise the exit code is 6.

` + cmdutil.DocumentNames,
		Example: cmdutil.Examples("tally doc mv doc/specs/store.md specs/log.md", "tally doc mv doc/draft doc/plan --base @12", "tally doc mv note/today 2026-08-22 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := cmdutil.Base("base", base)
			if err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return mv(cmd.Context(), a, st, args[0], args[1], at) })
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "offset of the latest revision, such as @12; default: any")
	return cmd
}

func mv(ctx context.Context, a *cmdutil.App, st *tally.Store, name, to string, base events.Offset) error {
	doc, err := cmdutil.Document(ctx, st, name)
	if err != nil {
		return err
	}
	switch doc.Kind {
	case sealed.Kind:
		return cli.Usagef("%s is sealed and cannot be renamed: its name is a part of the seal", cmdutil.NameOf(doc))
	case events.KindAgent:
		return cli.Usagef("%s is the file of an agent and cannot be renamed: the agent's name is in the file", cmdutil.NameOf(doc))
	}
	id := strings.TrimPrefix(to, doc.Kind+"/")
	rev, err := st.Documents().Rename(ctx, doc.Kind, doc.ID, base, id)
	if err != nil {
		return a.DocumentError(ctx, st, doc, err)
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, written{Kind: doc.Kind, ID: cli.ID(id), Offset: rev.Offset, Bytes: rev.Size, Durability: st.Log.Durability().String()})
	}
	return a.Say("%s is %s now, at %v.", cmdutil.NameOf(doc), cmdutil.NameOf(events.Document(st.Namespace(), doc.Kind, id)), rev.Offset)
}
