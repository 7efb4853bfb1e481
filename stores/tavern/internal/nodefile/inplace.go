package nodefile

import "slices"

// Edit returns the file with what a node says now. What it said already stays as it is
// written, and so does all that is not the node's; a file that says it all is returned as it
// is. Commitments are told by their ids: those that are left out go, and new ones come last.
// What cannot be written so that it is read back is an *Error, as is a file that is not the
// node's.
func Edit(text []byte, want Node) ([]byte, error) {
	want.Commitments = slices.Clone(want.Commitments)
	for i := range want.Commitments {
		want.Commitments[i].Failure = clean(want.Commitments[i].Failure)
	}
	if have, err := Parse(text); err != nil || same(have, want) {
		return text, err
	}
	text, err := editKeys(text, want)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(*file) ([]byte, error){
		func(f *file) ([]byte, error) {
			if f.node.Assignment != want.Assignment {
				want.Assignment = clean(want.Assignment)
			}
			return f.editAssignment(want.Assignment)
		},
		func(f *file) ([]byte, error) { return f.editCommitments(want.Commitments) },
		func(f *file) ([]byte, error) { return f.writeIDs(want.Commitments), nil },
	} {
		f, err := read(text)
		if err != nil {
			return nil, err
		}
		if text, err = step(&f); err != nil {
			return nil, err
		}
	}
	if have, err := Parse(text); err != nil || !same(have, want) {
		return nil, &Error{"node", "it cannot be written so that it is read back"}
	}
	return text, nil
}
