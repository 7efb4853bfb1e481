package reads

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/spend"
)

// costMark is the value of After for a list by cost: the last session of a page.
type costMark struct {
	USD string `json:"usd"` // as a fraction
	ID  []byte `json:"id"`  // not necessarily UTF-8
}

// pageByCost returns a page of at most limit sessions after a mark, sorted by cost.
func pageByCost(list []catalog.Session, spent *spend.Sums, after string, limit int) (catalog.Page, error) {
	known := make(map[string]*big.Rat, len(list))
	for _, s := range list {
		known[s.ID] = spent.Of(s.ID).Known()
	}
	compare := func(usd *big.Rat, id string, s catalog.Session) int {
		return cmp.Or(known[s.ID].Cmp(usd), cmp.Compare(id, s.ID))
	}
	slices.SortFunc(list, func(a, b catalog.Session) int { return compare(known[a.ID], a.ID, b) })
	if after != "" {
		usd, id, err := parseCostMark(after)
		if err != nil {
			return catalog.Page{}, err
		}
		list = slices.DeleteFunc(list, func(s catalog.Session) bool { return compare(usd, id, s) >= 0 })
	}
	if limit <= 0 || len(list) <= limit {
		return catalog.Page{Sessions: list}, nil
	}
	last := list[limit-1]
	next, err := json.Marshal(costMark{known[last.ID].RatString(), []byte(last.ID)})
	return catalog.Page{Sessions: list[:limit], Next: base64.RawURLEncoding.EncodeToString(next)}, err
}

func parseCostMark(token string) (usd *big.Rat, id string, err error) {
	var m costMark
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	usd, ok := new(big.Rat).SetString(m.USD)
	if err != nil || !ok {
		return nil, "", &events.InvalidError{Field: "after", Reason: fmt.Sprintf("%q is not a page token of this list", token)}
	}
	return usd, string(m.ID), nil
}
