package tail

// missUnknown begins to miss the files that only the state knows.
func (t *Tailer) missUnknown() {
	for _, f := range t.lost {
		if !f.isKnown && !f.gone && f.missing.IsZero() {
			f.missing = t.o.Now()
			t.absent[f] = true
		}
	}
}

// tellGone says which files are gone: those that are missed for long enough, with nothing
// left to be looked at where they could be. What is in a root that is not there is not gone.
func (t *Tailer) tellGone() {
	if !t.agenda.isOver || len(t.agenda.lists)+len(t.agenda.looks) > 0 {
		return
	}
	for f := range t.absent {
		if f.root.dir == nil || t.since(f.missing) < t.o.Grace && !t.o.Once {
			continue
		}
		delete(t.absent, f)
		if !f.isTold {
			t.drop(f)
			continue
		}
		f.gone = true
		t.tell(f, &Batch{Kind: Gone, File: f.File(), Note: f.note})
	}
	t.forgetGone()
}

// forgetGone forgets files that are gone, if there are more than are remembered.
func (t *Tailer) forgetGone() {
	for _, f := range t.lost {
		if len(t.lost) <= t.o.MaxFiles {
			return
		}
		if f.gone && len(f.out) == 0 && !t.dirty[f] {
			t.drop(f)
		}
	}
}
