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
		Use: "secrets", Short: "Check that sealed documents open, and seal them with a new key",
		Long: `Check that sealed documents open, and seal them with a new key. They are those of the
kind secret, which hold what runs have of keys, tokens and passwords. No command
shows what is in them.

Keys are in the file that ` + sealed.Variable + ` names, which nobody else may read: a
line for each, ID:KEY, where KEY is 64 hex digits. The last one seals, every one opens.

  umask 077; echo "2026:$(openssl rand -hex 32)" >> ~/.tally-keys
  export ` + sealed.Variable + `=~/.tally-keys

Who loses a key loses what is sealed with it: keep a copy, and not beside the store.`,
		Example: cmdutil.Examples("tally secrets check", "tally secrets rotate --dry-run", "tally secrets rotate -o json"),
	}
	cmd.AddCommand(newSecretsCheck(a), newSecretsRotate(a))
	return cmdutil.Noun(cmd)
}

func newSecretsCheck(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "List the sealed documents that do not open, and their keys", Args: cobra.NoArgs,
		Long: `Open every sealed document of every namespace, and say which do not open and what key
they are sealed with. Exit code 3: a key is missing. Exit code 5: a key that is there
does not open a document, so its bytes were changed or moved, or another key has that
id now; or the document is damaged.`,
		Example: cmdutil.Examples("tally secrets check", "tally secrets check -o json", "TALLY_SECRET_KEY_FILE=old-keys tally secrets check"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ring, err := sealed.FromEnvironment()
			if errors.Is(err, sealed.ErrNoKey) {
				fmt.Fprintln(a.Err, sealed.Variable+" names no file with keys: nothing opens")
			} else if err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				c := newSecretsChecked(ring)
				if err := eachSecret(cmd.Context(), st, c.add); err != nil {
					return err
				}
				return c.show(a)
			})
		},
	}
}

// secretRead is a sealed document as it was read.
type secretRead struct {
	docs *tally.Documents // of its namespace
	sub  events.Subject
	doc  *tally.Document // nil with an error
	err  error           // *events.DamageError
}

// eachSecret reads the sealed documents of all namespaces, sorted, without those that are
// not there any more.
func eachSecret(ctx context.Context, st *tally.Store, f func(secretRead) error) error {
	var subs []events.Subject // first, as f may write
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
		if errors.Is(r.err, events.ErrNotFound) {
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

// keyID is that which a document says, "" if it is not to be read.
func (r secretRead) keyID() string {
	if r.doc == nil {
		return ""
	}
	box, _ := sealed.ParseBox(r.doc.Data)
	return box.KeyID
}

// open returns what is sealed in a document.
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

// closedCode ends a command that found documents which do not open.
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
	why := map[string]string{"noKey": "there is no such key", "seal": "the key does not open it", "damaged": "its record cannot be read"}
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

// secretsChecked is what secrets check prints.
type secretsChecked struct {
	Documents int            `json:"documents"`
	Open      int            `json:"open"`
	Key       string         `json:"key,omitempty"` // the newest: what is sealed now, is sealed with it
	Keys      []secretKey    `json:"keys"`
	Closed    []closedSecret `json:"closed"`
	ring      *sealed.Ring
}

// secretKey is a key that there is, or that documents are sealed with.
type secretKey struct {
	ID        string `json:"id"`
	Known     bool   `json:"known"`     // it is in the file
	Documents int    `json:"documents"` // that name it
}

func newSecretsChecked(ring *sealed.Ring) *secretsChecked {
	c := &secretsChecked{Key: ring.Newest(), Keys: []secretKey{}, Closed: []closedSecret{}, ring: ring}
	for _, id := range ring.IDs() {
		c.Keys = append(c.Keys, secretKey{ID: id, Known: true})
	}
	return c
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
			note = "is not in the file"
		case k.ID == c.Key:
			note = "the newest: seals"
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
