package view_test

import (
	"slices"

	"github.com/tallylog/tally/events"
)

// A modelled session follows the definitions of docs/wire.md literally and shares no code with folds. It copies lists of
// records. It knows the events that drawHistory makes.
type modelled struct {
	records   []events.Record // inherited ones first
	inherited int
	lists     [][]int // numbers of live records, before the first record and after each one
	rejected  map[events.Offset]bool
}

// model returns a session as of an offset, for a reader that begins at born.
func model(all []events.Record, sub events.Subject, upto, born events.Offset) *modelled {
	m := &modelled{lists: [][]int{nil}, rejected: make(map[events.Offset]bool)}
	var own []events.Record
	for _, rec := range all {
		if rec.Subject == sub {
			own = append(own, rec)
		}
	}
	if len(own) == 0 || own[0].Offset >= born {
		return m
	}
	if c, err := events.DecodeAs[events.SessionCreated](own[0].Event); err == nil && c.Fork != nil && c.Fork.Offset < own[0].Offset {
		parent := model(all, events.Session("", c.Fork.Session), c.Fork.Offset, own[0].Offset)
		for _, n := range parent.list() {
			if rec := parent.records[n]; rec.Offset <= upto || own[0].Offset <= upto {
				m.add(rec, append(slices.Clone(m.list()), m.inherited))
				m.inherited++
			}
		}
	}
	rewinds := make(map[events.Offset]bool)
	for _, rec := range own {
		if rec.Offset > upto {
			break
		}
		n, before := len(m.records), m.list()
		p, err := events.Decode(rec.Type, rec.Data)
		c, isFork := p.(*events.SessionCreated)
		r, isRewind := p.(*events.SessionRewound)
		basis, hasBasis := rec.Basis()
		switch {
		case err != nil, isFork && c.Fork.Offset >= rec.Offset, // invalid, or a fork above itself
			isRewind && (n == 0 || r.To >= rec.Offset || r.To < m.records[0].Offset || r.Undoes != 0 && !rewinds[r.Undoes]):
			m.rejected[rec.Offset] = true
			m.add(rec, before)
		case isRewind:
			rewinds[rec.Offset] = true
			m.add(rec, m.lists[m.upto(r.To)])
		case hasBasis && slices.ContainsFunc(m.lists[m.upto(basis)], func(k int) bool {
			return !slices.Contains(before, k) && m.records[k].Type != events.TypeCostAccrued && m.records[k].Type != events.TypeSessionCreated
		}):
			m.add(rec, before) // stale
		default:
			m.add(rec, append(slices.Clone(before), n))
		}
	}
	return m
}

func (m *modelled) list() []int { return m.lists[len(m.lists)-1] }

func (m *modelled) add(rec events.Record, list []int) {
	m.records, m.lists = append(m.records, rec), append(m.lists, list)
}

// upto returns the number of records at or below an offset.
func (m *modelled) upto(at events.Offset) (n int) {
	for n < len(m.records) && m.records[n].Offset <= at {
		n++
	}
	return n
}

// effective returns the records of some types that are in effect.
func (m *modelled) effective(moves map[string]bool) (list []events.Record) {
	for n, rec := range m.records {
		isMoved, isWanted := moves[rec.Type]
		isLive := slices.Contains(m.list(), n)
		if isWanted && !m.rejected[rec.Offset] && (isMoved && isLive || !isMoved && n >= m.inherited) {
			list = append(list, rec)
		}
	}
	return list
}
