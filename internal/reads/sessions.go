package reads

import (
	"context"
	"fmt"
	"iter"
	"math/big"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/spend"
	"github.com/tallylog/tally/projector"
)

// Session is a session in a list.
type Session struct {
	Session    string           `json:"session"`
	Kind       string           `json:"kind"`
	Title      string           `json:"title,omitempty"`
	About      string           `json:"about,omitempty"` // title, else goal, else first line of a user
	Status     string           `json:"status,omitempty"`
	Project    string           `json:"project,omitempty"`
	CWD        string           `json:"cwd,omitempty"`
	CreatedAt  events.Timestamp `json:"createdAt,omitempty"`
	LastAt     events.Timestamp `json:"lastAt,omitempty"`
	Turns      int              `json:"turns"` // turns in effect, over all threads
	TotalTurns int              `json:"totalTurns"`
	Runs       int              `json:"runs"`
	Rewinds    int              `json:"rewinds"`
	Records    int              `json:"records"`
	USD        events.Amount    `json:"usd,omitempty"`      // sum of amounts in records; absent if there are costs and none has an amount
	Computed   events.Amount    `json:"computed,omitempty"` // USD at list prices, for costs without an amount; absent if no price is known
	Partial    int              `json:"partial,omitempty"`  // costs of which Computed has only a part, because another part has no known price
	Unknown    int              `json:"unknown,omitempty"`  // costs of unknown amount
	Tokens     events.Tokens    `json:"tokens"`
	Models     []string         `json:"models,omitempty"` // models that the session names
	First      events.Offset    `json:"first"`
	Head       events.Offset    `json:"head"`
	Parent     string           `json:"parent,omitempty"`
	Fork       *events.Fork     `json:"fork,omitempty"`
	Erased     bool             `json:"erased,omitempty"` // all content was erased
	Next       string           `json:"next,omitempty"`   // only in the last session of a page: the value for --after
}

// ByCost sorts by known cost, the highest first. The catalog has no such order, because it knows no prices.
const ByCost catalog.Order = "cost"

// SessionsQuery selects sessions.
type SessionsQuery struct {
	catalog.Query         // Namespace is that of the Reader
	MinCost       float64 // in USD, reported or computed
}

// Sessions are a page of sessions, with what they cost.
type Sessions struct {
	List[Session]

	Rows  []catalog.Session `json:"-"` // the rows of Items
	Spent *spend.Sums       `json:"-"` // by session
}

// Sessions returns a page of sessions, from the views. Costs are complete up to AsOf.
func (r Reader) Sessions(ctx context.Context, q SessionsQuery) (Sessions, error) {
	q.Namespace = r.Namespace
	if q.Limit < 0 {
		return Sessions{}, &events.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d: want a number from 0", q.Limit)}
	}
	page, spent, asOf, err := r.page(ctx, q)
	if err != nil {
		return Sessions{}, err
	}
	list := Sessions{List[Session]{make([]Session, len(page.Sessions)), page.Next, asOf.Offset, asOf}, page.Sessions, spent}
	for i, s := range page.Sessions {
		list.Items[i] = sessionOf(s, spent.Of(s.ID))
	}
	return list, nil
}

// page returns a page of sessions, their costs, and the offset up to which costs are known.
func (r Reader) page(ctx context.Context, q SessionsQuery) (page catalog.Page, spent *spend.Sums, asOf projector.Cursor, err error) {
	if q.Sort != ByCost && q.MinCost <= 0 {
		if page, err = r.Views.Catalog.List(ctx, q.Query); err == nil {
			spent, asOf, err = r.spentBy(ctx, page.Sessions)
		}
		return page, spent, asOf, err
	}
	if spent, asOf, err = r.spentByAll(ctx); err != nil {
		return page, spent, asOf, err
	}
	lowest, ok := new(big.Rat).SetString(strconv.FormatFloat(max(q.MinCost, 0), 'f', -1, 64))
	keep := func(s catalog.Session) bool { return q.MinCost <= 0 || ok && spent.Of(s.ID).Known().Cmp(lowest) >= 0 }
	if q.Sort != ByCost {
		page, err = r.Views.Catalog.ListOf(ctx, q.Query, keep)
		return page, spent, asOf, err
	}
	all := q.Query
	all.Sort, all.Limit, all.After = catalog.ByID, 0, ""
	if page, err = r.Views.Catalog.ListOf(ctx, all, keep); err == nil {
		page, err = pageByCost(page.Sessions, spent, q.After, q.Limit)
	}
	return page, spent, asOf, err
}

// spentBy adds up the costs of sessions, and returns up to which offset they are known.
func (r Reader) spentBy(ctx context.Context, list []catalog.Session) (*spend.Sums, projector.Cursor, error) {
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = s.ID
	}
	return r.sumOf(ctx, func(a catalog.Activity) iter.Seq2[catalog.Usage, error] {
		return a.UsagesOf(ctx, r.Namespace, nil, ids...)
	})
}

// spentByAll is spentBy for all sessions.
func (r Reader) spentByAll(ctx context.Context) (*spend.Sums, projector.Cursor, error) {
	return r.sumOf(ctx, func(a catalog.Activity) iter.Seq2[catalog.Usage, error] { return a.Usages(ctx, r.Namespace, nil) })
}

func (r Reader) sumOf(ctx context.Context, usages func(catalog.Activity) iter.Seq2[catalog.Usage, error]) (*spend.Sums, projector.Cursor, error) {
	activity, err := catalog.OpenActivity(ctx, r.Views.Dir)
	if err != nil {
		return nil, projector.Cursor{}, err
	}
	defer activity.Close()
	asOf, err := r.Views.AsOf(ctx, r.Views.Catalog.Standing, activity.Standing)
	if err != nil {
		return nil, asOf, err
	}
	by := spend.New(r.Prices)
	for u, err := range usages(activity) {
		if err != nil {
			return nil, asOf, err
		}
		by.Add(u.Session, u)
	}
	return by, asOf, nil
}

func sessionOf(s catalog.Session, of spend.Sum) Session {
	l := Session{
		Session: render.ID(s.ID), Kind: s.Kind, Title: s.Title, About: s.About(), Status: s.Status, Project: s.Project, CWD: s.CWD,
		CreatedAt: s.CreatedAt, LastAt: s.LastAt, Turns: s.Turns, TotalTurns: s.TotalTurns, Runs: s.Runs, Rewinds: s.Rewinds,
		Records: s.Records, USD: of.USD, Computed: of.Computed, Partial: of.Partial, Unknown: of.Unknown, Tokens: of.Tokens, First: s.First, Head: s.Head, Parent: render.ID(s.Parent), Erased: s.Erased,
	}
	if s.Fork.Session != "" {
		l.Fork = &s.Fork
	}
	if s.Models != "" {
		l.Models = strings.Split(s.Models, ", ")
	}
	return l
}
