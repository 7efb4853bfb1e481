package layouts

import (
	"cmp"
	"fmt"
)

// Problem is a piece of the input that could not be imported correctly, or of the state that could not be exported.
type Problem struct {
	File   string `json:"file"`           // relative to the root; for a refused session, its folder
	Line   int    `json:"line,omitempty"` // from 1; 0: the whole file
	Reason string `json:"reason"`
}

// String returns file:line: reason, without the parts that are missing.
func (p Problem) String() string {
	if p.File == "" {
		return p.Reason
	}
	if p.Line == 0 {
		return p.File + ": " + p.Reason
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Reason)
}

// Way is the way in which the bytes of a file are kept.
type Way uint8

const (
	Exact   Way = iota // rendered from the state
	Derived            // computed from other parts of the state, not stored
	Whole              // as a document
)

// Files counts files by the way in which their bytes are kept.
type Files struct {
	Exact   int `json:"exact"`
	Derived int `json:"derived"`
	Whole   int `json:"whole"`
}

// Add counts a file.
func (f *Files) Add(w Way) {
	switch w {
	case Exact:
		f.Exact++
	case Derived:
		f.Derived++
	case Whole:
		f.Whole++
	}
}

// Total is the number of files.
func (f Files) Total() int { return f.Exact + f.Derived + f.Whole }

// Report is the result of an import, an export or a dry run.
type Report struct {
	Root      string   `json:"root,omitempty"` // name under which the folder is, or will be, exported
	Dir       string   `json:"-"`              // import: absolute path of the folder that files are relative to; "": the folder of the file
	Sessions  int      `json:"sessions"`       // number examined
	Added     int      `json:"added"`          // of these: new in the store
	Changed   int      `json:"changed"`        // of these: with new events
	Unchanged int      `json:"unchanged"`
	Refused   []string `json:"refused,omitempty"` // ids of sessions that were not changed or not exported, for the reasons in Problems
	Events    int      `json:"events"`            // added to the log
	Files     Files    `json:"files"`
	Bytes     int64    `json:"bytes"`

	Written int `json:"written"` // by an export: files written
	Kept    int `json:"kept"`    // by an export: files that had these bytes already

	Problems []Problem `json:"problems,omitempty"` // a command exits with 3 if there are any
	Notes    []Problem `json:"notes,omitempty"`    // remarks that are not problems
}

// Add sums the reports of several paths. Root is that of the first.
func (r *Report) Add(o Report) {
	r.Root = cmp.Or(r.Root, o.Root)
	r.Sessions += o.Sessions
	r.Added += o.Added
	r.Changed += o.Changed
	r.Unchanged += o.Unchanged
	r.Refused = append(r.Refused, o.Refused...)
	r.Events += o.Events
	r.Files.Exact += o.Files.Exact
	r.Files.Derived += o.Files.Derived
	r.Files.Whole += o.Files.Whole
	r.Bytes += o.Bytes
	r.Written += o.Written
	r.Kept += o.Kept
	r.Problems = append(r.Problems, o.Problems...)
	r.Notes = append(r.Notes, o.Notes...)
}

// Progress is the progress of an import or export. All members but Of only grow.
type Progress struct {
	Sessions, Files, Events int
	Bytes                   int64
	Of                      int // total number of sessions
}
