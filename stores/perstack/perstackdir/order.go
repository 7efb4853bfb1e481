package perstackdir

import (
	"cmp"
	"slices"
	"strings"
)

// inOrder sorts values for the import. The order depends only on the values: the job first, then settings, then events
// by time, step and name. A checkpoint has no time. It follows the last event of its run whose step is not greater than
// its own.
func inOrder(values []*value) {
	setTimes(values)
	slices.SortFunc(values, func(a, b *value) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.at, b.at), cmp.Compare(a.part, b.part)*-1,
			cmp.Compare(a.step, b.step), strings.Compare(a.base, b.base), cmp.Compare(a.n, b.n), strings.Compare(a.Path, b.Path))
	})
}

func rank(v *value) int {
	switch v.part {
	case partJob:
		return 0
	case partSetting:
		return 1
	}
	return 2
}

// setTimes sets the time of each checkpoint for the order.
func setTimes(values []*value) {
	byRun := make(map[string][]*value)
	for _, v := range values {
		if v.part == partEvent {
			byRun[v.run] = append(byRun[v.run], v)
		}
	}
	for run, list := range byRun {
		byRun[run] = latest(list)
	}
	for _, v := range values {
		if v.part != partCheckpoint {
			continue
		}
		list := byRun[v.run]
		if n, _ := slices.BinarySearchFunc(list, v.step, func(e *value, step int64) int {
			if e.step <= step {
				return -1
			}
			return 1
		}); n > 0 {
			v.at = list[n-1].at
		}
	}
}

// latest sorts the events of a run by step, and keeps those that are later than all earlier steps.
func latest(list []*value) []*value {
	slices.SortFunc(list, func(a, b *value) int { return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.at, b.at)) })
	kept := list[:0]
	for _, e := range list {
		if len(kept) == 0 || e.at >= kept[len(kept)-1].at {
			kept = append(kept, e)
		}
	}
	return kept
}
