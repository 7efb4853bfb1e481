package admin

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/sealed"
	"github.com/tallylog/tally/projector"
)

func newSecretsRotate(a *cmdutil.App) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "rotate", Short: "Seal every sealed document with the newest key", Args: cobra.NoArgs,
		Long: `Seal every sealed document of every namespace with the newest key, the last of the
file. What is sealed with it already stays as it is, so the command can be stopped
and repeated. A document that somebody else writes meanwhile is read again.

What does not open is listed, and stays; the exit codes are those of check.

The revisions before stay in the log, sealed with the older key: keep that for as long
as they have to open. Once nothing is to open with it any more, delete the key; or take
away documents with all their revisions: tally doc rm secret/ID --purge.`,
		Example: cmdutil.Examples("tally secrets rotate --dry-run", "tally secrets rotate", "tally secrets rotate -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ring, err := sealed.FromEnvironment()
			if err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				r := &rotation{Key: ring.Newest(), DryRun: dry, Closed: []closedSecret{}, ring: ring}
				if err := eachSecret(cmd.Context(), st, func(doc secretRead) error { return r.add(cmd.Context(), doc) }); err != nil {
					return err
				}
				return r.show(a)
			})
		},
	}
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "say how many would be sealed again, and write nothing")
	return cmd
}

// rotation is a rotate under way, and what it prints.
type rotation struct {
	Key       string         `json:"key"`
	Documents int            `json:"documents"`
	Sealed    int            `json:"sealed"`  // with the key, by this command
	Already   int            `json:"already"` // with the key before
	DryRun    bool           `json:"dryRun,omitempty"`
	Closed    []closedSecret `json:"closed"`
	ring      *sealed.Ring
}

// mostTries bounds how often a document is read again that others write.
const mostTries = 20

// add seals a document with the newest key. Its write is a compare-and-swap of its own, so a
// crash leaves each document sealed with one key or the other, and a repetition goes on.
func (r *rotation) add(ctx context.Context, doc secretRead) error {
	r.Documents++
	for try := 1; ; try++ {
		again, err := r.seal(ctx, doc)
		if !again || try == mostTries {
			return err
		}
		doc.doc, err = doc.docs.Read(ctx, doc.sub.Kind, doc.sub.ID)
		if errors.Is(err, events.ErrNotFound) { // somebody deleted it
			r.Documents--
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// seal seals a document as it was read. It says to try again if that is not what it is any
// more.
func (r *rotation) seal(ctx context.Context, doc secretRead) (again bool, err error) {
	plain, err := doc.open(r.ring)
	if err != nil {
		r.Closed = append(r.Closed, closedBy(doc, err))
		return false, nil
	}
	if doc.keyID() == r.Key {
		r.Already++
		return false, nil
	}
	if !r.DryRun {
		content, err := r.ring.SealDocument(doc.sub, plain)
		if err == nil {
			_, err = doc.docs.Update(ctx, doc.sub.Kind, doc.sub.ID, doc.doc.Offset, replacing(doc.doc.Revision, content))
		}
		if err != nil {
			return cli.Is[*tally.DocumentConflictError](err) || errors.Is(err, events.ErrNotFound), err
		}
	}
	r.Sealed++
	return false, nil
}

// replacing is a revision that says all that another says, with other content.
func replacing(rev projector.Revision, content []byte) tally.Write {
	m := rev.Meta
	w := tally.Write{Data: content, ContentType: rev.ContentType, Title: m.Title, Attributes: m.Attributes, Links: m.Links, Owner: m.Owner, Layer: m.Layer}
	w.ExpiresAt, _ = m.ExpiresAt.Time()
	return w
}

func (r *rotation) show(a *cmdutil.App) error {
	if a.Format != cli.Text {
		return errors.Join(cli.WriteJSON(a.Out, a.Format, r), closedCode(r.Closed))
	}
	if err := showClosed(a, r.Closed); err != nil {
		return err
	}
	did := "Sealed"
	if r.DryRun {
		did = "Would seal"
	}
	err := a.Say("%s %d of %d documents with the key %q; %d had it already, and %d do not open.", did, r.Sealed, r.Documents, r.Key, r.Already, len(r.Closed))
	return errors.Join(err, closedCode(r.Closed))
}
