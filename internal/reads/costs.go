package reads

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/spend"
	"github.com/tallylog/tally/projector"
)

// Costs are sums of recorded costs.
type Costs struct {
	Spent    spend.Sum    `json:"spent"`              // all costs, rewound or not
	OnBranch *spend.Sum   `json:"onBranch,omitempty"` // costs of the records in effect; only for one session
	By       string       `json:"by"`                 // keys, separated by commas
	TZ       string       `json:"tz,omitempty"`       // time zone of the days, if By includes day; absent: UTC
	Groups   []CostGroup  `json:"groups"`
	InTurns  *spend.Told  `json:"inTurns,omitempty"` // responses without a recorded cost; not part of another sum
	Copies   []Copies     `json:"copies,omitempty"`  // costs that are not part of any sum, because another session has the same response
	Prices   []spend.Used `json:"prices,omitempty"`

	Cursor   projector.Cursor `json:"-"` // up to which the sums are complete
	Speaking int              `json:"-"` // sessions whose last response is not counted yet
}

// Copies are costs of a session that are left out, because another session has the same responses.
type Copies struct {
	Session string        `json:"session"`
	Of      string        `json:"of"`
	Costs   int           `json:"costs"`
	USD     events.Amount `json:"usd,omitempty"` // sum of amounts in events; absent if no event has an amount
	Tokens  events.Tokens `json:"tokens"`
}

// CostGroup is the sum of the costs with the same keys.
type CostGroup struct {
	Key  string   `json:"key"`            // several keys are separated by ", "
	Keys []string `json:"keys,omitempty"` // only for several keys, in the order of By
	spend.Sum
}

// CostsQuery selects costs and groups them.
type CostsQuery struct {
	By           string             // model, project, agent, run, day, kind or session, or several, separated by commas
	Zone         Zone               // of days
	Since, Until string             // days: costs from the one on, and before the other; "": all
	Session      *projector.Session // whose costs are asked for; nil: those of all sessions
}

// Check returns an error if a member is invalid.
func (q CostsQuery) Check() error {
	keys := strings.Split(q.By, ",")
	for i, key := range keys {
		if costKeys[key] == nil || slices.Contains(keys[:i], key) {
			return &events.InvalidError{Field: "by", Reason: fmt.Sprintf("%q: want model, project, agent, run, day, kind or session, or several separated by commas", q.By)}
		}
	}
	for _, day := range []struct{ name, text string }{{"since", q.Since}, {"until", q.Until}} {
		if _, err := time.Parse(time.DateOnly, day.text); err != nil && day.text != "" {
			return &events.InvalidError{Field: day.name, Reason: fmt.Sprintf("%q: want a day such as 2026-03-01", day.text)}
		}
	}
	return nil
}

// in reports whether a cost is of a day that was asked for.
func (q CostsQuery) in(u catalog.Usage) bool {
	if q.Since == "" && q.Until == "" {
		return true
	}
	day := q.Zone.DayOf(u.At, u.Day)
	return q.Since <= day && (q.Until == "" || day < q.Until)
}

// Costs adds up what sessions cost, from the views.
func (r Reader) Costs(ctx context.Context, q CostsQuery) (Costs, error) {
	if err := q.Check(); err != nil {
		return Costs{}, err
	}
	t := tab{CostsQuery: q, r: r, groups: spend.New(r.Prices), whole: spend.New(r.Prices), copies: make(map[[2]string]*projector.Total)}
	if err := t.views(ctx); err != nil {
		return Costs{}, err
	}
	return t.costs(), nil
}

// costKeys returns the group of a cost, by the name of the key.
var costKeys = map[string]func(catalog.Usage, catalog.Session, Zone) string{
	"model":   func(u catalog.Usage, _ catalog.Session, _ Zone) string { return u.Model },
	"session": func(u catalog.Usage, _ catalog.Session, _ Zone) string { return render.ID(u.Session) },
	"day":     func(u catalog.Usage, _ catalog.Session, z Zone) string { return z.DayOf(u.At, u.Day) },
	"project": func(_ catalog.Usage, s catalog.Session, _ Zone) string { return s.Project },
	"kind": func(u catalog.Usage, s catalog.Session, _ Zone) string {
		return cmp.Or(s.Kind, events.KindOf(u.Session)) // the catalog has no items
	},
	"agent": func(u catalog.Usage, s catalog.Session, _ Zone) string {
		name, _, _ := strings.Cut(u.Session, "/")
		if s.Kind != events.KindTranscript {
			return ""
		}
		return name
	},
	"run": func(u catalog.Usage, _ catalog.Session, _ Zone) string {
		if u.Run == nil {
			return "-"
		}
		return u.Run.String()
	},
}

// tab adds up costs.
type tab struct {
	CostsQuery
	r             Reader
	sessions      map[string]catalog.Session // by id, if a key needs them
	groups, whole *spend.Sums
	copies        map[[2]string]*projector.Total // by the session of the copy and that of the original
	asOf          projector.Cursor
	speaking      int // sessions whose last response is not counted yet
}

// names reports whether costs are grouped by a key.
func (t *tab) names(key string) bool { return slices.Contains(strings.Split(t.By, ","), key) }

// Keys of the totals.
const (
	everything = ""
	onBranch   = "on this branch"
)

func (t *tab) add(u catalog.Usage) {
	t.whole.Add(everything, u)
	if u.Source != catalog.InTurn {
		t.groups.Add(t.key(u), u)
	}
}

// key returns the group of a cost: its keys, joined by a separator that no key contains.
func (t *tab) key(u catalog.Usage) string {
	var keys []string
	for name := range strings.SplitSeq(t.By, ",") {
		keys = append(keys, strings.ReplaceAll(costKeys[name](u, t.sessions[u.Session], t.Zone), between, " "))
	}
	return strings.Join(keys, between)
}

const between = "\x00"

// views reads costs and tokens from the view. The view knows all sessions, so a response in several sessions counts
// once.
func (t *tab) views(ctx context.Context) error {
	v, namespace := t.r.Views, t.r.Namespace
	if err := t.label(ctx); err != nil {
		return err
	}
	activity, err := catalog.OpenActivity(ctx, v.Dir)
	if err != nil {
		return err
	}
	defer activity.Close()
	if t.asOf, err = v.AsOf(ctx, activity.Standing); err != nil {
		return err
	}
	if err := t.countSpeaking(ctx); err != nil {
		return err
	}
	usages := activity.Usages(ctx, namespace, t.leaveOut)
	if t.Session != nil {
		usages = activity.UsagesOf(ctx, namespace, t.leaveOut, t.Session.Subject.ID)
	}
	for u, err := range usages {
		if err != nil {
			return err
		}
		if !t.in(u) {
			continue
		}
		if t.add(u); t.Session != nil && u.Source != catalog.InTurn && t.Session.History.IsLive(u.CountsAt()) {
			t.whole.Add(onBranch, u)
		}
	}
	return nil
}

// countSpeaking counts the sessions of Claude Code whose last response is not counted yet. Each line of a response has
// the tokens so far. The response counts when the next one begins, the turn ends, or a minute passes without a line.
func (t *tab) countSpeaking(ctx context.Context) error {
	page, err := t.r.Views.Catalog.List(ctx, catalog.Query{Namespace: t.r.Namespace, Since: time.Now().Add(-time.Minute)})
	for _, s := range page.Sessions {
		of := t.Session == nil || t.Session.Subject.ID == s.ID
		if of && s.Kind == events.KindTranscript && strings.HasPrefix(s.ID, "claude/") {
			t.speaking++
		}
	}
	return err
}

// leaveOut records a copy.
func (t *tab) leaveOut(c catalog.Copy) {
	key := [2]string{c.Session, c.Of}
	if t.copies[key] == nil {
		t.copies[key] = &projector.Total{USD: "0"}
	}
	*t.copies[key] = t.copies[key].Plus(projector.Cost{USD: c.USD, Tokens: c.Tokens})
}

// label reads the sessions from the catalog, if costs are grouped by their attributes.
func (t *tab) label(ctx context.Context) error {
	if !slices.ContainsFunc(strings.Split(t.By, ","), func(name string) bool { return slices.Contains([]string{"project", "kind", "agent"}, name) }) {
		return nil
	}
	page, err := t.r.Views.Catalog.List(ctx, catalog.Query{Namespace: t.r.Namespace, Erased: true})
	t.sessions = make(map[string]catalog.Session, len(page.Sessions))
	for _, s := range page.Sessions {
		t.sessions[s.ID] = s
	}
	return err
}

func (t *tab) costs() Costs {
	doc := Costs{Spent: t.whole.Of(everything), By: t.By, Groups: []CostGroup{}, InTurns: t.whole.ToldOf(everything), Prices: t.whole.Prices(), Cursor: t.asOf, Speaking: t.speaking}
	if t.Session != nil {
		branch := t.whole.Of(onBranch)
		doc.OnBranch = &branch
	}
	if t.names("day") && t.Zone.Name != "UTC" {
		doc.TZ = t.Zone.Name
	}
	for _, key := range slices.SortedFunc(maps.Keys(t.copies), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		c := t.copies[key]
		doc.Copies = append(doc.Copies, Copies{render.ID(key[0]), render.ID(key[1]), c.Events, nonzero(c.USD), c.Tokens})
	}
	for _, key := range slices.Sorted(slices.Values(t.groups.Keys())) {
		g := CostGroup{Key: key, Sum: t.groups.Of(key)}
		if keys := strings.Split(key, between); len(keys) > 1 {
			g.Key, g.Keys = strings.Join(keys, ", "), keys
		}
		doc.Groups = append(doc.Groups, g)
	}
	return doc
}

// nonzero returns an amount, or "" for zero.
func nonzero(usd events.Amount) events.Amount {
	if r, ok := usd.Rat(); !ok || r.Sign() == 0 {
		return ""
	}
	return usd
}
