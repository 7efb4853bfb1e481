package render

import (
	"strings"

	"github.com/tallylog/tally/events"
)

// Node is one record of a graph.
type Node struct {
	Offset events.Offset
	Live   bool          // in effect at the head
	After  events.Offset // the last live record before it: what it grew from; 0 for the first
	Mark   byte          // * for a record, < for a rewind, ! for a late or void one
}

// Graph draws the branches of a session: for each node, in order, the lines to
// print before it and the marks in front of it. What is live at the head stands
// in the first lane; each branch that a rewind left has a lane beside it for as
// long as it grew.
func Graph(nodes []Node) (before [][]string, marks []string) {
	lanes := assign(nodes)
	width := 1
	ends := make(map[int]int) // the last node of each branch
	for i, l := range lanes {
		width = max(width, l.lane+1)
		ends[l.branch] = i
	}
	open := make([]int, width) // branch in each lane, 0: none
	for i, n := range nodes {
		l := lanes[i]
		var lines []string
		if l.lane > 0 && open[l.lane] != l.branch {
			open[l.lane] = l.branch
			lines = append(lines, branchLine(open, l.lane, n.After))
		}
		before = append(before, lines)
		marks = append(marks, markLine(open, l.lane, n.Mark))
		if l.lane > 0 && ends[l.branch] == i {
			open[l.lane] = 0
		}
	}
	return before, marks
}

type placed struct{ lane, branch int }

// assign gives every node a lane: 0 if it is live at the head, else one that is
// free while its branch grows.
func assign(nodes []Node) []placed {
	list := make([]placed, len(nodes))
	branchOf := make(map[events.Offset]int) // of the nodes that left the live list
	tip := make(map[int]events.Offset)      // the last of them in each branch: from there it grows
	last := make(map[int]int)
	branches := 0
	for i, n := range nodes {
		if n.Live {
			continue
		}
		b, left := branchOf[n.After]
		switch {
		case n.Mark != '*' && !left:
			continue // it stands at a place of the live list
		case n.Mark == '*' && (!left || tip[b] != n.After):
			branches++
			b = branches
		}
		if n.Mark == '*' {
			branchOf[n.Offset], tip[b] = b, n.Offset
		}
		list[i].branch, last[b] = b, i
	}
	lane := make(map[int]int)
	var busy []int // until which node each lane is taken
	for i := range nodes {
		b := list[i].branch
		if b == 0 {
			continue
		}
		if _, has := lane[b]; !has {
			free := 0
			for free < len(busy) && busy[free] >= i {
				free++
			}
			if free == len(busy) {
				busy = append(busy, 0)
			}
			busy[free], lane[b] = last[b], free+1
		}
		list[i].lane = lane[b]
	}
	return list
}

func branchLine(open []int, lane int, from events.Offset) string {
	var b strings.Builder
	b.WriteString("|")
	for l := 1; l < lane; l++ {
		if open[l] != 0 {
			b.WriteString("-|")
		} else {
			b.WriteString("--")
		}
	}
	b.WriteString(`\`)
	if from != 0 {
		b.WriteString("   from " + from.String())
	}
	return b.String()
}

func markLine(open []int, lane int, mark byte) string {
	var b strings.Builder
	for l := range open {
		switch {
		case l == lane:
			b.WriteByte(mark)
		case l == 0 || open[l] != 0:
			b.WriteByte('|')
		default:
			b.WriteByte(' ')
		}
		b.WriteByte(' ')
	}
	return b.String()
}
