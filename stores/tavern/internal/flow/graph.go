package flow

import (
	"fmt"
	"strconv"
)

// A graph is a template with states by number.
type graph struct {
	t    *Template
	to   [][]int // moves
	from [][]int // the reverse of to
	lost []int   // where recovery leads to, or -1
}

// graph makes the graph. It returns an error if the template names a missing state.
func (t *Template) graph() (*graph, error) {
	n := len(t.States)
	g := &graph{t: t, to: make([][]int, n), from: make([][]int, n), lost: make([]int, n)}
	last := make([]int, n) // the last state that leads to this one, plus 1
	for i := range t.States {
		s := &t.States[i]
		for k, name := range s.To {
			j, ok := t.index[name]
			switch {
			case !ok:
				return nil, wrong(target(s, k), "there is no state %s", shown(name))
			case last[j] == i+1:
				return nil, wrong(target(s, k), "%s is there twice", shown(name))
			}
			last[j] = i + 1
			g.to[i], g.from[j] = append(g.to[i], j), append(g.from[j], i)
		}
		if g.lost[i] = -1; s.Recovery == RuleState {
			j, ok := t.index[s.RecoverTo]
			if !ok {
				return nil, wrong(t.recoveryPointer(s), "there is no state %s", shown(s.RecoverTo))
			}
			g.lost[i] = j
		}
	}
	return g, nil
}

// target returns the JSON pointer of the k-th state that may follow a state.
func target(s *State, k int) string {
	return below(below(below("/states", s.Name), "to"), strconv.Itoa(k))
}

func (g *graph) check() error {
	if i := g.circle(); i >= 0 {
		s := &g.t.States[i]
		return wrong(g.t.recoveryPointer(s), "recovery of %s leads back to it: nothing would end it", shown(s.Name))
	}
	begins := g.walk([]int{g.t.index[g.t.Initial]}, func(i int) []int {
		if g.lost[i] < 0 {
			return g.to[i]
		}
		return append(g.to[i][:len(g.to[i]):len(g.to[i])], g.lost[i])
	})
	if i, more := missing(begins); i >= 0 {
		return wrong(below("/states", g.t.States[i].Name), "nothing leads here from %s%s", shown(g.t.Initial), more)
	}
	var ends []int
	for i := range g.t.States {
		if g.t.States[i].End {
			ends = append(ends, i)
		}
	}
	if i, more := missing(g.walk(ends, func(i int) []int { return g.from[i] })); i >= 0 {
		return wrong(below("/states", g.t.States[i].Name), "no way from here to an end: a circle without an exit%s", more)
	}
	return nil
}

// walk returns the states that can be reached from given states.
func (g *graph) walk(from []int, next func(int) []int) []bool {
	reached := make([]bool, len(g.to))
	for _, i := range from {
		reached[i] = true
	}
	for len(from) > 0 {
		i := from[len(from)-1]
		from = from[:len(from)-1]
		for _, j := range next(i) {
			if !reached[j] {
				reached[j] = true
				from = append(from, j)
			}
		}
	}
	return reached
}

// missing returns the first state that was not reached, or -1, and a text with the number of further ones.
func missing(reached []bool) (first int, more string) {
	n := 0
	first = -1
	for i, ok := range reached {
		if ok {
			continue
		}
		if n++; first < 0 {
			first = i
		}
	}
	if n > 1 {
		more = fmt.Sprintf(" (and %d more)", n-1)
	}
	return first, more
}

// circle returns a state whose recovery leads back to it by recovery alone, or -1.
func (g *graph) circle() int {
	round := make([]int, len(g.lost)) // in which a state was met, from 1
	for start := range g.lost {
		i := start
		for i >= 0 && round[i] == 0 {
			round[i] = start + 1
			i = g.lost[i]
		}
		if i >= 0 && round[i] == start+1 {
			return i
		}
	}
	return -1
}
