package events

import "errors"

// TreeError reports that files of a tree do not show an append. The append itself is stored.
type TreeError struct {
	Tree string // its name; "": unknown
	Path string // "": no single file is the reason
	Err  error
}

func (e *TreeError) Error() string {
	tree := "a tree"
	if e.Tree != "" {
		tree = "tree " + e.Tree
	}
	text := "the append is stored, but " + tree + " does not show it: "
	if e.Path != "" {
		text += e.Path + ": "
	}
	return text + e.Err.Error()
}

// Unwrap returns the reason.
func (e *TreeError) Unwrap() error { return e.Err }

// IsStored reports whether an append that returned err is in the log: err is nil, or a *TreeError.
func IsStored(err error) bool {
	_, unshown := errors.AsType[*TreeError](err)
	return err == nil || unshown
}
