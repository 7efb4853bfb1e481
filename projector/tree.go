package projector

// TreeError says that files of a tree do not show what was appended, which is stored.
type TreeError struct {
	Tree string // its name
	Path string // "": no single file is why
	Err  error
}

func (e *TreeError) Error() string {
	text := "it is stored, but tree " + e.Tree + " does not show it: "
	if e.Path != "" {
		text += e.Path + ": "
	}
	return text + e.Err.Error()
}

// Unwrap returns why.
func (e *TreeError) Unwrap() error { return e.Err }
