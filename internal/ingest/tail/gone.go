package tail

// missUnknown marks files in the state as missing if they were not found.
func (t *Tailer) missUnknown() {
	for _, f := range t.lost {
		if !f.isKnown && !f.gone && f.missing.IsZero() {
			f.missing = t.o.Now()
			t.absent[f] = true
		}
	}
}

// tellGone reports missing files: those that are missing for long enough, with no pending check that could find them.
// Without a watch, only a check of all folders since then finds a file that was moved. Files of a missing root are not
// reported.
func (t *Tailer) tellGone() {
	if !t.agenda.isOver || len(t.agenda.lists)+len(t.agenda.looks) > 0 {
		return
	}
	for f := range t.absent {
		if f.root.dir == nil || !t.o.Once && (t.since(f.missing) < t.o.Grace || t.unwatched > 0 && t.since(f.missing) <= t.since(t.agenda.looked)) {
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

// forgetGone forgets missing files above the limit.
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
