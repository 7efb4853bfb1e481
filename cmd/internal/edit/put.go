package edit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func newPut(a *cmdutil.App) *cobra.Command {
	p := &putter{app: a}
	cmd := &cobra.Command{
		Use: "put KIND/ID [FILE|-]", Short: "Write a document from a file or standard input", Args: cobra.RangeArgs(1, 2),
		Long: `Write a document from a file or standard input, byte for byte, up to 64 MiB.
` + cmdutil.DocumentNames + `

One of these flags states which revision the write replaces:

  --create     none: if the document exists, that is a conflict
  --base @N    the revision at @N, as doc cat --mark and doc ls print it: if the
               document has a newer revision, that is a conflict
  --save       any revision, or none

In a conflict nothing is written and the exit code is 6. The error has the present
revision, its SHA-256, and the holder of a lease on the document.

Each revision has its own metadata: a title, link or attribute that no flag sets is
gone. With --base and --keep it stays.

agent/ID is the file of an agent. Writing it changes the agent: --create creates the
agent, and another state in the file is a change of state, with the same rules. Metadata
that no flag sets stay.`,
		Example: cmdutil.Examples("tally doc put doc/specs/store.md store.md --create --title 'The store'", "tally doc put doc/specs/store.md store.md --base @12 --keep",
			"date | tally doc put note/today --save --expires 24h --owner ann", "tally doc put doc/plan plan.md --create --link parent=doc/goal --attr state=draft"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(cmd); err != nil {
				return err
			}
			var err error
			if p.Data, err = a.Content(args[1:]); err != nil {
				return err
			}
			return p.within(cmd.Context(), func(st *tally.Store) error { return p.put(cmd.Context(), st, args[0]) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.base, "base", "", "offset of the revision that this one replaces, such as @12")
	f.BoolVar(&p.create, "create", false, "create a new document")
	f.BoolVar(&p.save, "save", false, "replace any revision, or create the document")
	f.BoolVar(&p.keep, "keep", false, "with --base, keep the type, title, owner, layer, links, attributes and expiry that no flag sets")
	f.StringVar(&p.ContentType, "type", "", "media type, such as text/markdown (default "+events.ContentTypeRaw+")")
	f.StringVar(&p.Title, "title", "", "title, for lists")
	f.StringVar(&p.Owner, "owner", "", "owner of the document")
	f.StringVar(&p.Layer, "layer", "", "layer, such as project or personal")
	f.StringArrayVar(&p.links, "link", nil, "REL=KIND/ID or REL=session/ID: a link; may be repeated")
	f.StringArrayVar(&p.attributes, "attr", nil, "NAME=VALUE: an attribute; may be repeated")
	f.StringVar(&p.expires, "expires", "", "end of the document: a duration from now, such as 24h or 7d, or a time")
	f.StringVar(&p.ID, "key", "", "idempotency key: a repeated write with the same key is one revision")
	return cmd
}

// putter writes one document.
type putter struct {
	app *cmdutil.App
	tally.Write

	base, expires      string
	links, attributes  []string
	create, save, keep bool
	says               func(flag string) bool
}

// check validates the flags.
func (p *putter) check(cmd *cobra.Command) (err error) {
	p.says = cmd.Flags().Changed
	ways := 0
	for _, is := range []bool{p.create, p.save, p.base != ""} {
		if is {
			ways++
		}
	}
	if ways != 1 {
		return &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("%s wants one of --create, --base @N and --save", cmd.CommandPath()),
			Hint: "--create writes a new document, --base @N replaces that revision, --save writes in any case."}
	}
	if p.keep && p.base == "" {
		return cli.Usagef("--keep needs --base: it keeps the metadata of a revision")
	}
	if p.Base, err = cmdutil.Base("base", p.base); err != nil {
		return err
	}
	p.ExpiresAt, err = cmdutil.Until("expires", p.expires, time.Now())
	return err
}

// within opens the store. It creates a missing store only for a new document.
func (p *putter) within(ctx context.Context, f func(*tally.Store) error) error {
	if p.base != "" {
		return p.app.WithExisting(ctx, f)
	}
	return p.app.WithStore(ctx, f)
}

// written is the output of doc put and doc mv, with -o json.
type written struct {
	Kind       string        `json:"kind"`
	ID         string        `json:"id"`
	Offset     events.Offset `json:"offset"`
	Bytes      int           `json:"bytes"`
	SHA256     string        `json:"sha256,omitempty"`
	Durability string        `json:"durability"`
}

func (p *putter) put(ctx context.Context, st *tally.Store, name string) error {
	doc, err := cmdutil.Document(ctx, st, name)
	if err != nil {
		return err
	}
	rev, err := p.write(ctx, st, doc)
	if err != nil {
		return p.app.DocumentError(ctx, st, doc, err)
	}
	promise := st.Log.Durability()
	if p.app.Format == cli.Text {
		return p.app.Say("Wrote %s: %v, %s, %s.", cmdutil.NameOf(doc), rev.Offset, plain.Bytes(int64(len(p.Data))), promise)
	}
	sum := sha256.Sum256(p.Data)
	return cli.WriteJSON(p.app.Out, p.app.Format, written{doc.Kind, cli.ID(doc.ID), rev.Offset, len(p.Data), hex.EncodeToString(sum[:]), promise.String()})
}

func (p *putter) write(ctx context.Context, st *tally.Store, doc events.Subject) (rev projector.Revision, err error) {
	if err := p.fields(ctx, st); err != nil {
		return rev, err
	}
	if doc.Kind == events.KindAgent {
		return p.writeAgent(ctx, st, doc)
	}
	docs := st.Documents()
	if p.keep {
		before, err := docs.Read(ctx, doc.Kind, doc.ID)
		if err != nil {
			return rev, err
		}
		p.keepOf(before.Revision) // if this is not the base, the write is a conflict
	}
	if p.create {
		return docs.Create(ctx, doc.Kind, doc.ID, p.Write)
	}
	return docs.Save(ctx, doc.Kind, doc.ID, p.Write)
}

// fields parses links and attributes.
func (p *putter) fields(ctx context.Context, st *tally.Store) error {
	for _, text := range p.links {
		rel, to, ok := strings.Cut(text, "=")
		if !ok || rel == "" {
			return cli.Usagef("--link %q: want REL=KIND/ID or REL=session/ID", text)
		}
		sub, err := cmdutil.Linkable(ctx, st, to)
		if err != nil {
			return err
		}
		p.Links = append(p.Links, events.Link{Rel: rel, To: sub.String()})
	}
	for _, text := range p.attributes {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return cli.Usagef("--attr %q: want NAME=VALUE", text)
		}
		if p.Attributes == nil {
			p.Attributes = make(map[string]string)
		}
		p.Attributes[name] = value
	}
	return nil
}

// keepOf copies the values that no flag sets from a revision.
func (p *putter) keepOf(rev projector.Revision) {
	for flag, keep := range map[string]func(){
		"type":    func() { p.ContentType = rev.ContentType },
		"title":   func() { p.Title = rev.Meta.Title },
		"owner":   func() { p.Owner = rev.Meta.Owner },
		"layer":   func() { p.Layer = rev.Meta.Layer },
		"link":    func() { p.Links = rev.Meta.Links },
		"attr":    func() { p.Attributes = rev.Meta.Attributes },
		"expires": func() { p.ExpiresAt, _ = rev.Meta.ExpiresAt.Time() },
	} {
		if !p.says(flag) {
			keep()
		}
	}
}
