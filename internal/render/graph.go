package render

import (
	"strings"

	"github.com/tallylog/tally/events"
)

// Node is a record in a graph.
type Node struct {
	Offset events.Offset
	Live   bool          // the record is in effect at the head
	After  events.Offset // the last live record before it, from which it grew; 0 for the first
	Mark   byte          // * for a record, < for a rewind, ! for a stale or rejected record
}

// Graph draws the branches of a session. For each node, in order, it returns lines to print before the node and the
// marks in front of it. Records that are live at the head are in the first lane. Each branch that a rewind left has its
// own lane for as long as it grew.
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

type nodeLane struct{ lane, branch int }

// assign returns the lane of each node: 0 if the node is live at the head, else a lane that is free while the branch of
// the node grows.
func assign(nodes []Node) []nodeLane {
	list := make([]nodeLane, len(nodes))
	branchOf := make(map[events.Offset]int) // of nodes that are not live
	tip := make(map[int]events.Offset)      // last node of each branch, where it grows
	last := make(map[int]int)
	branches := 0
	for i, n := range nodes {
		if n.Live {
			continue
		}
		b, left := branchOf[n.After]
		switch {
		case n.Mark != '*' && !left:
			continue // a rewind within the live list stays in the first lane
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
	var busy []int // last node of the branch in each lane
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
