package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/sealed"
)

func newSecrets(a *cmdutil.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secrets", Short: "Check sealed documents, and seal them with a new key",
		Long: `Check sealed documents, and seal them with a new key. Sealed documents are those of the
kind secret: they hold the keys, tokens and passwords of runs. No command prints their
content.

Keys are in the file that ` + sealed.Variable + ` names. Nobody else may be able to
read it. It has a line ID:KEY for each key, where KEY is 64 hex digits. The last key
seals, and all keys open.

  umask 077; echo "2026:$(openssl rand -hex 32)" >> ~/.tally-keys
  export ` + sealed.Variable + `=~/.tally-keys

If a key is lost, the documents that it sealed are lost: keep a copy of the file, and
not next to the store.`,
		Example: cmdutil.Examples("tally secrets check", "tally secrets rotate --dry-run", "tally secrets rotate -o json"),
	}
	cmd.AddCommand(newSecretsCheck(a), newSecretsRotate(a))
	return cmdutil.Noun(cmd)
}

func newSecretsCheck(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "List sealed documents that cannot be opened, and their keys", Args: cobra.NoArgs,
		Long: `Open every sealed document of every namespace, and list those that cannot be opened and
the keys that sealed them. Exit code 3: a key is missing. Exit code 5: a key does not
open a document, because the document was changed or moved or another key has the id
now; or the document is damaged.`,
		Example: cmdutil.Examples("tally secrets check", "tally secrets check -o json", "TALLY_SECRET_KEY_FILE=old-keys tally secrets check"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ring, err := sealed.FromEnvironment()
			if errors.Is(err, sealed.ErrNoKey) {
				fmt.Fprintln(a.Err, sealed.Variable+" is not set, so no document can be opened")
			} else if err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				c, err := checkSecrets(cmd.Context(), st, ring)
				if err != nil {
					return err
				}
				return c.show(a)
			})
		},
	}
}

// secretRead is a sealed document and the result of reading it.
type secretRead struct {
	docs *tally.Documents // documents of its namespace
	sub  events.Subject
	doc  *tally.Document // nil if there is an error
	err  error           // *events.DamageError
}

// eachSecret calls f for each sealed document of all namespaces, sorted by subject. Deleted documents are skipped.
func eachSecret(ctx context.Context, st *tally.Store, f func(secretRead) error) error {
	var subs []events.Subject // collected first, because f may write
	for info, err := range st.Log.Subjects(ctx, "", sealed.Kind) {
		if err != nil {
			return err
		}
		subs = append(subs, info.Subject)
	}
	for _, sub := range subs {
		in, err := st.In(sub.Namespace)
		if err != nil {
			return err
		}
		r := secretRead{docs: in.Documents(), sub: sub}
		r.doc, r.err = r.docs.Read(ctx, sub.Kind, sub.ID)
		if errors.Is(r.err, events.ErrNotFound) || r.err == nil && r.doc.Erased != "" {
			continue
		}
		if r.err != nil && !cli.Is[*events.DamageError](r.err) {
			return r.err
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// keyID returns the id of the key that sealed the document, or "" if the document cannot be read.
func (r secretRead) keyID() string {
	if r.doc == nil {
		return ""
	}
	box, _ := sealed.ParseBox(r.doc.Data)
	return box.KeyID
}

// open returns the clear content of a document.
func (r secretRead) open(ring *sealed.Ring) ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	return ring.OpenDocument(r.sub, r.doc.Data)
}

// closedSecret is a sealed document that does not open.
type closedSecret struct {
	Namespace string        `json:"namespace"`
	ID        string        `json:"id"`
	Offset    events.Offset `json:"offset,omitempty"`
	KeyID     string        `json:"keyID,omitempty"`
	Reason    string        `json:"reason"` // noKey, seal or damaged
	Error     string        `json:"error"`
}

func closedBy(r secretRead, err error) closedSecret {
	c := closedSecret{Namespace: r.sub.Namespace, ID: cli.ID(r.sub.ID), KeyID: r.keyID(), Reason: "seal", Error: err.Error()}
	if r.doc != nil {
		c.Offset = r.doc.Offset
	}
	switch {
	case errors.Is(err, sealed.ErrNoKey), cli.Is[*sealed.UnknownKeyError](err):
		c.Reason = "noKey"
	case r.err != nil:
		c.Reason = "damaged"
	}
	return c
}

// closedCode returns the exit code for documents that do not open.
func closedCode(list []closedSecret) error {
	switch {
	case len(list) == 0:
		return nil
	case slices.ContainsFunc(list, func(c closedSecret) bool { return c.Reason != "noKey" }):
		return cli.Silent(cli.Integrity)
	}
	return cli.Silent(cli.Partial)
}

// showClosed lists documents that do not open.
func showClosed(a *cmdutil.App, list []closedSecret) error {
	if len(list) == 0 {
		return nil
	}
	t := render.Table{Head: []string{"NAMESPACE", "SECRET", "OFFSET", "KEY", "WHY"}, Right: []int{2}, Cut: []int{4, 1}}
	why := map[string]string{"noKey": "the key is missing", "seal": "the key does not open it", "damaged": "its record cannot be read"}
	for _, c := range list {
		key, text := c.KeyID, why[c.Reason]
		if key == "" {
			key = "-"
			if c.Reason == "seal" {
				text = "it is not a sealed document"
			}
		}
		t.Rows = append(t.Rows, []string{c.Namespace, c.ID, c.Offset.String(), key, text})
	}
	return a.Table(t)
}

// secretsChecked is the output of secrets check.
type secretsChecked struct {
	Documents int            `json:"documents"`
	Open      int            `json:"open"`
	Key       string         `json:"key,omitempty"` // the newest key, which seals
	Keys      []secretKey    `json:"keys"`
	Closed    []closedSecret `json:"closed"`
	ring      *sealed.Ring
}

// secretKey is a key in the file, or one that documents need.
type secretKey struct {
	ID        string `json:"id"`
	Known     bool   `json:"known"`     // the key is in the file
	Documents int    `json:"documents"` // documents that the key sealed
}

// checkSecrets opens all sealed documents.
func checkSecrets(ctx context.Context, st *tally.Store, ring *sealed.Ring) (*secretsChecked, error) {
	c := &secretsChecked{Key: ring.Newest(), Keys: []secretKey{}, Closed: []closedSecret{}, ring: ring}
	for _, id := range ring.IDs() {
		c.Keys = append(c.Keys, secretKey{ID: id, Known: true})
	}
	return c, eachSecret(ctx, st, c.add)
}

func (c *secretsChecked) add(r secretRead) error {
	c.Documents++
	if _, err := r.open(c.ring); err != nil {
		c.Closed = append(c.Closed, closedBy(r, err))
	} else {
		c.Open++
	}
	id := r.keyID()
	if id == "" {
		return nil
	}
	i := slices.IndexFunc(c.Keys, func(k secretKey) bool { return k.ID == id })
	if i < 0 {
		i = len(c.Keys)
		c.Keys = append(c.Keys, secretKey{ID: id})
	}
	c.Keys[i].Documents++
	return nil
}

func (c *secretsChecked) show(a *cmdutil.App) error {
	if a.Format != cli.Text {
		return errors.Join(cli.WriteJSON(a.Out, a.Format, c), closedCode(c.Closed))
	}
	if c.Documents == 0 && len(c.Keys) == 0 {
		return a.Say("There are no sealed documents.")
	}
	t := render.Table{Head: []string{"KEY", "DOCUMENTS", ""}, Right: []int{1}}
	for _, k := range c.Keys {
		note := ""
		switch {
		case !k.Known:
			note = "missing in the file"
		case k.ID == c.Key:
			note = "newest, used to seal"
		}
		t.Rows = append(t.Rows, []string{k.ID, strconv.Itoa(k.Documents), note})
	}
	if err := errors.Join(a.Table(t), showClosed(a, c.Closed)); err != nil {
		return err
	}
	return errors.Join(a.Say("%d of %d sealed %s.", c.Open, c.Documents, opens(c.Documents)), closedCode(c.Closed))
}

func opens(n int) string {
	if n == 1 {
		return "document opens"
	}
	return "documents open"
}
