package nodefile

import "slices"

// Edit returns the file with the contents of a node. Equal parts keep their spelling, and so does all text outside of
// the node; if nothing differs, the file is returned unchanged. Commitments are matched by id: missing ones are
// removed, and new ones are appended. If a value could not be read back, or the file belongs to another node, the error
// is an *Error.
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
