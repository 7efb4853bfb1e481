package admin

import (
	"context"
	"io"
	"iter"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/prices"
	"github.com/tallylog/tally/internal/render/page"
	"github.com/tallylog/tally/internal/spend"
	"github.com/tallylog/tally/projector"
)

// Formats of pages, the values of --format.
const (
	markdown = "markdown"
	html     = "html"
)

// pages writes each session as one page.
type pages struct {
	form string
	gone bool // also turns that are not in effect

	prices prices.Table // prices for costs without an amount
}

// Name implements layouts.Renderer.
func (p pages) Name() string { return p.form }

// Files implements layouts.Renderer. The only file is the page.
func (p pages) Files(ctx context.Context, src layouts.Source, s *projector.Session) iter.Seq2[layouts.File, error] {
	return func(yield func(layouts.File, error) bool) {
		f := layouts.File{Path: layouts.FileName(s.Subject.ID) + ".html", Mode: layouts.FileMode(0), Way: layouts.Derived}
		if p.form == markdown {
			f.Path = layouts.FileName(s.Subject.ID) + ".md"
		}
		content := page.Page{Session: s, All: p.gone, Costs: p.costs(s)}
		var err error
		if p.gone {
			content.Gone, err = src.Loader().Gone(ctx, s)
			err = projector.Tolerate(err) // export reports damage
		}
		f.Write = content.WriteHTML
		if p.form == markdown {
			f.Write = content.WriteMarkdown
		}
		yield(f, err)
	}
}

// costs returns the costs of a session in the words of tally cost.
func (p pages) costs(s *projector.Session) []string {
	sums := spend.New(p.prices)
	for _, c := range s.Ledger.Costs {
		sums.AddCost("", c)
	}
	return append([]string{}, sums.Of("").Words()...)
}

// RootFiles implements layouts.Renderer. It yields no file.
func (pages) RootFiles(context.Context, layouts.Source, string) iter.Seq2[layouts.File, error] {
	return func(func(layouts.File, error) bool) {}
}

// print writes the page of one session.
func (p pages) print(ctx context.Context, a *cmdutil.App, st *tally.Store, s *projector.Session, w io.Writer) error {
	for f, err := range p.Files(ctx, st, s) {
		if err != nil {
			return err
		}
		if err := f.Write(w); err != nil {
			return err
		}
	}
	return a.WarnDamaged(s)
}
