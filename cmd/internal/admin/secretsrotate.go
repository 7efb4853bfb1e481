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
		Use: "rotate", Short: "Seal all sealed documents with the newest key", Args: cobra.NoArgs,
		Long: `Seal all sealed documents of all namespaces with the newest key, the last one in the
file. Documents that have this key already stay as they are, so the command can be
interrupted and repeated. A document that changes meanwhile is read again.

Documents that cannot be opened are listed, and stay as they are. The exit codes are
those of check.

Earlier revisions stay in the log, sealed with the older key: keep that key as long as
you need them. After that, delete the key, or remove documents with all their
revisions: tally doc rm secret/ID --purge.`,
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
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "print how many documents would be sealed, and write nothing")
	return cmd
}

// rotation is a run of secrets rotate, and its output.
type rotation struct {
	Key       string         `json:"key"`
	Documents int            `json:"documents"`
	Sealed    int            `json:"sealed"`  // documents that this command sealed with the newest key
	Already   int            `json:"already"` // documents that had the newest key already
	DryRun    bool           `json:"dryRun,omitempty"`
	Closed    []closedSecret `json:"closed"`
	ring      *sealed.Ring
}

// maxAttempts bounds how often a document is read again because others write it.
const maxAttempts = 20

// add seals a document with the newest key. Each document is written by its own compare-and-swap, so after a crash each
// is sealed with the old key or with the new one, and the command can be repeated.
func (r *rotation) add(ctx context.Context, doc secretRead) error {
	r.Documents++
	for attempt := 1; ; attempt++ {
		again, err := r.seal(ctx, doc)
		if !again || attempt == maxAttempts {
			return err
		}
		doc.doc, err = doc.docs.Read(ctx, doc.sub.Kind, doc.sub.ID)
		if errors.Is(err, events.ErrNotFound) { // deleted meanwhile
			r.Documents--
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// seal seals a document as it was read. again reports that the document has changed since.
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

// replacing returns a write with new content that keeps all other attributes of a revision.
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
