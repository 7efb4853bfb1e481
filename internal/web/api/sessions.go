package api

import (
	"encoding/json"
	"errors"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/web"
)

func readSession(c *web.Call) error {
	at := c.Query("at")
	s, err := reads.Reader{Store: c.Store}.Session(c.Context(), c.Path("id"), at)
	if err != nil {
		return err
	}
	if at == "" {
		c.SetHeader("ETag", web.ETag(s.Head))
	}
	return c.JSON(200, s)
}

func readTurns(c *web.Call) error {
	q := reads.TurnsQuery{Session: c.Path("id"), Thread: c.Query("thread"), At: c.Query("at")}
	for name, to := range map[string]*int{"from": &q.From, "to": &q.To, "last": &q.Last, "around": &q.Around, "limit": &q.Limit} {
		var err error
		if *to, err = c.Int(name, 0, 1, events.MaxTurns); err != nil {
			return err
		}
	}
	turns, err := reads.Reader{Store: c.Store}.Turns(c.Context(), q)
	if err != nil {
		return err
	}
	fix(c, q.At, turns.Offset)
	return c.JSON(200, turns)
}

func readBranches(c *web.Call) error {
	q := reads.BranchesQuery{Session: c.Path("id")}
	var err error
	if q.After, err = c.Offset("after"); err != nil {
		return err
	}
	if q.Limit, err = c.Int("limit", 100, 1, maxList); err != nil {
		return err
	}
	b, _, err := reads.Reader{Store: c.Store}.Branches(c.Context(), q)
	if err != nil {
		return err
	}
	return c.JSON(200, b)
}

func readDiff(c *web.Call) error {
	q := reads.DiffQuery{Session: c.Path("id"), From: c.Query("from"), To: c.Query("to")}
	var err error
	if q.Limit, err = c.Int("limit", 100, 1, maxList); err != nil {
		return err
	}
	d, err := reads.Reader{Store: c.Store}.Diff(c.Context(), q)
	if err != nil {
		return err
	}
	return c.JSON(200, d)
}

// viewed calls f with views that show all records acknowledged before the call, or say up to which offset they do.
func (d Door) viewed(c *web.Call, f func(reads.Reader) error, needs ...string) error {
	absent := &web.Problem{Code: "unavailable", Detail: "this process keeps no views of the store"}
	if c.Store.ViewsDir() == "" {
		return absent
	}
	for _, need := range needs {
		if _, err := c.Store.Shows(c.Context(), need); errors.Is(err, tally.ErrNotFound) {
			return absent
		} else if err != nil {
			return err
		}
	}
	v, err := reads.OpenViews(c.Context(), c.Store.ViewsDir())
	if errors.Is(err, catalog.ErrNoView) {
		return absent
	}
	if err != nil {
		return err
	}
	defer v.Close()
	return f(reads.Reader{Store: c.Store, Views: v, Prices: d.Prices, Namespace: c.Store.Namespace()})
}

// sessionList has the members that a list of sessions prints.
type sessionList = reads.List[reads.Session]

// pick returns the value of a parameter that is one of a list; "" is the first.
func pick[T ~string](c *web.Call, name string, list ...T) (T, error) {
	text := c.Query(name)
	for _, v := range list {
		if string(v) == text || text == "" {
			return v, nil
		}
	}
	return "", invalid(name, "the order is not known")
}

// maxPage bounds the sessions and hits of an answer.
const maxPage = 500

func (d Door) listSessions(c *web.Call) (err error) {
	q := reads.SessionsQuery{}
	q.Grep, q.Kind, q.Project, q.Agent, q.Model = c.Query("q"), c.Query("kind"), c.Query("project"), c.Query("agent"), c.Query("model")
	q.Status, q.Parent, q.After = c.Query("status"), c.Query("parent"), c.Query("after")
	if q.Since, err = reads.Time("since", c.Query("since"), c.Store.Now()); err != nil {
		return err
	}
	if q.Until, err = reads.Time("until", c.Query("until"), c.Store.Now()); err != nil {
		return err
	}
	if q.Limit, err = c.Int("limit", 100, 1, maxPage); err != nil {
		return err
	}
	if q.Sort, err = pick(c, "order", catalog.ByActive, catalog.ByHead, catalog.ByCreated, reads.ByCost, catalog.ByTurns, catalog.ByRecords, catalog.ByID); err != nil {
		return err
	}
	return d.viewed(c, func(r reads.Reader) error {
		page, err := r.Sessions(c.Context(), q)
		if err != nil {
			return err
		}
		return c.JSON(200, page.List)
	}, "catalog", "search")
}

func (d Door) search(c *web.Call) (err error) {
	q := catalog.Lookup{Text: c.Query("q"), Session: c.Query("session"), Thread: c.Query("thread"), Role: c.Query("role"), Kind: c.Query("kind"), Project: c.Query("project")}
	if q.All, err = isYes(c, "all"); err != nil {
		return err
	}
	if q.Since, err = reads.Time("since", c.Query("since"), c.Store.Now()); err != nil {
		return err
	}
	if q.Until, err = reads.Time("until", c.Query("until"), c.Store.Now()); err != nil {
		return err
	}
	if q.Limit, err = c.Int("limit", 20, 1, maxPage); err != nil {
		return err
	}
	if q.Sort, err = pick(c, "order", catalog.ByNewest, catalog.ByRank); err != nil {
		return err
	}
	return d.viewed(c, func(r reads.Reader) error {
		hits, err := r.Search(c.Context(), q)
		if err != nil {
			return err
		}
		return c.JSON(200, hits)
	}, "search")
}

func isYes(c *web.Call, name string) (bool, error) {
	switch c.Query(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, invalid(name, "want true or false")
}

func (d Door) readCosts(c *web.Call) (err error) {
	q := reads.CostsQuery{By: c.Query("by"), Since: c.Query("since"), Until: c.Query("until")}
	if q.By == "" {
		q.By = "model"
	}
	if zone := c.Query("zone"); zone != "" {
		if q.Zone, err = reads.ZoneNamed(zone); err != nil {
			return invalid("zone", "want a name such as Europe/Berlin")
		}
	}
	return d.viewed(c, func(r reads.Reader) error {
		costs, err := r.Costs(c.Context(), q)
		if err != nil {
			return err
		}
		return c.JSON(200, costs)
	}, "catalog", "search")
}

func (d Door) readStrip(c *web.Call) error {
	bins, err := c.Int("bins", 0, 1, maxList)
	if err != nil {
		return err
	}
	return d.viewed(c, func(r reads.Reader) error {
		strip, err := r.Strip(c.Context(), reads.StripQuery{Session: c.Path("id"), Bins: bins})
		if err != nil {
			return err
		}
		return c.JSON(200, strip)
	}, "search")
}

// newSession is a session to create: the payload of session.created, with an id.
type newSession struct {
	ID string `json:"id,omitempty"`
	events.SessionCreated
}

// idOf has the members of a new session that this door may add.
type idOf struct {
	ID        *string         `json:"id"`
	Kind      *string         `json:"kind"`
	CreatedAt json.RawMessage `json:"createdAt"`
}
