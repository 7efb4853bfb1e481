package erratadir

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/foreign"
)

// historyHead is how the oldest history begins.
var historyHead = regexp.MustCompile(`^(\x{feff})?\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\[\s*(\]|\{\s*"(?i:role)"\s*:)`)

// source is a file as the importer found it.
type source struct {
	path   string // inside the session's folder
	full   string // below the root
	part   part
	size   int64
	mode   int64
	sum    string            // of the file
	format events.FileFormat // by which the state renders it
	value  bool              // the state gets something from it
	issues []formats.Problem
}

func (s *source) problem(line int, reason string) {
	s.issues = append(s.issues, formats.Problem{File: s.full, Line: line, Reason: reason})
}

// unit is the folder of a session, or the file beside sessions/ that is one, as
// the importer found it.
type unit struct {
	tree  foreign.Tree
	limit int // bytes that a value may have
	id    string
	dir   string    // below the root
	files []*source // sorted by path
	links []string  // what is neither file nor folder

	metadata   rawjson.Members // of session_metadata.json, its runs emptied
	summaries  []events.Raw
	content    rawjson.Members // of session_content.json, without histories, its runs emptied
	contents   []events.Raw
	threads    rawjson.Members // arrays of turns
	prompts    []events.Raw
	checkpoint events.Raw
	recipe     []byte

	birth   string           // created_at, as it stands there
	created events.Timestamp // best knowledge of the beginning
}

// file gives the file of a path, nil if the unit has none.
func (u *unit) file(name string) *source {
	for _, s := range u.files {
		if s.path == name {
			return s
		}
	}
	return nil
}

// of gives the file that holds a part, nil if there is none or nothing could be
// read from it.
func (u *unit) of(p part) *source {
	for _, s := range u.files {
		if s.part == p && s.value {
			return s
		}
	}
	return nil
}

// has reports whether there is a file for a part, whatever is in it.
func (u *unit) has(p part) bool {
	return slices.ContainsFunc(u.files, func(s *source) bool { return s.part == p })
}

// list finds the files of a session's folder.
func (u *unit) list(dir string) error {
	if name, ok := beside[u.id]; ok {
		return u.add(name, name)
	}
	entries, err := u.tree.Entries(path.Join(u.dir, dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		rel := path.Join(dir, e.Name())
		switch {
		case e.IsDir():
			err = u.list(rel)
		case !e.Type().IsRegular():
			u.links = append(u.links, path.Join(u.dir, rel))
		default:
			err = u.add(rel, path.Join(u.dir, rel))
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(u.files, func(a, b *source) int { return strings.Compare(a.path, b.path) })
	return nil
}

func (u *unit) add(rel, full string) error {
	s, err := newSource(u.tree, rel, full)
	if err == nil {
		s.part = partOf(u.id, rel)
		u.files = append(u.files, s)
	}
	return err
}

func newSource(tree foreign.Tree, rel, full string) (*source, error) {
	info, err := tree.Root.Lstat(full)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "import", Path: full, Err: fs.ErrInvalid}
	}
	return &source{path: rel, full: full, size: info.Size(), mode: formats.ModeOf(info.Mode().Perm())}, nil
}

// scan reads every file once.
func (u *unit) scan() error {
	for _, s := range u.files {
		if err := u.scanFile(s); err != nil {
			return err
		}
	}
	return u.begin()
}

func (u *unit) scanFile(s *source) error {
	if s.part == partOther || s.size > int64(u.limit) {
		if s.part != partOther {
			s.problem(0, fmt.Sprintf("longer than %d bytes: kept as it is", u.limit))
		}
		return scanWhole(u.tree, s)
	}
	data, err := read(u.tree, s)
	if err != nil {
		return err
	}
	s.sum, s.size = foreign.SumOf(data), int64(len(data))
	switch s.part {
	case partRecipe:
		u.recipe, s.value = data, true
		return nil
	case partPrompts:
		return u.scanPrompts(s, data)
	}
	u.scanJSON(s, data)
	return nil
}

func read(tree foreign.Tree, s *source) ([]byte, error) {
	r, err := tree.Open(s.full)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, s.size+1))
}

func scanWhole(tree foreign.Tree, s *source) error {
	r, err := tree.Open(s.full)
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	s.size, err = io.Copy(h, r)
	s.sum = foreign.HexSum(h)
	return err
}

// scanPrompts reads the prompts, each a JSON string. Other lines are reported.
func (u *unit) scanPrompts(s *source, data []byte) error {
	bad := 0
	err := foreign.EachLine(bytes.NewReader(data), u.limit, func(t foreign.TurnLine) error {
		if t.Line == 1 {
			s.format.BOM = t.BOM
			if t.End == "\r\n" {
				s.format.Separator = t.End
			}
		}
		s.format.FinalNewline = t.End != ""
		switch {
		case t.Err == nil && t.Raw == nil:
			return nil
		case t.Err == nil && t.Raw[0] == '"':
			u.prompts = append(u.prompts, bytes.Clone(t.Raw))
			return nil
		}
		if bad++; bad <= maxIssues {
			reason := "no prompt: want a JSON string"
			if t.Err != nil {
				reason = foreign.ReasonOf(t.Err)
			}
			s.problem(t.Line, reason)
		}
		return nil
	})
	if bad > maxIssues {
		s.problem(0, fmt.Sprintf("and %d more such lines", bad-maxIssues))
	}
	s.value = true
	return err
}

const maxIssues = 50 // listed for one file

// scanJSON takes a JSON file apart. One that cannot be read is reported, and
// nothing is taken from it.
func (u *unit) scanJSON(s *source, data []byte) {
	v, err := foreign.ReadJSON(data, foreign.TurnInside+2)
	var m rawjson.Members
	if err == nil {
		m, err = rawjson.Object(v.Raw)
	}
	if err == nil {
		err = u.take(s.part, v.Raw, m)
	}
	if err != nil {
		s.problem(foreign.LineOf(data, err), foreign.ReasonOf(err)+": kept as it is, nothing is taken from it")
		return
	}
	s.value, s.format = true, v.Format
	if s.part == partMetadata {
		if _, said := m.Get("created_at"); said && u.created == "" {
			s.problem(0, "created_at: want a time such as 2026-01-02T03:04:05.678-08:00 (kept as it stands)")
		}
	}
}

// take reads the value of a file.
func (u *unit) take(p part, raw events.Raw, m rawjson.Members) error {
	switch p {
	case partMetadata:
		runs, ok := panel.List(m, "runs")
		if !ok {
			return &rawjson.FieldError{Path: "runs", Reason: "want an array"}
		}
		u.summaries, u.metadata = runs, shell(m, "runs")
		u.birth, u.created = m.Text("created_at"), panel.Time(m, "created_at")
	case partContent:
		runs, ok := panel.List(m, "runs")
		if !ok {
			return &rawjson.FieldError{Path: "runs", Reason: "want an array"}
		}
		threads, err := historiesIn(m)
		if err != nil {
			return err
		}
		u.contents, u.threads = runs, threads
		u.content = slices.DeleteFunc(shell(m, "runs"), func(x rawjson.Member) bool { return x.Name == "histories" && len(threads) > 0 })
	case partHistory:
		if err := checkHistories(m); err != nil {
			return err
		}
		u.threads = m
	case partCheckpoint:
		u.checkpoint = raw
	}
	return nil
}

// shell gives an object with one array emptied.
func shell(m rawjson.Members, name string) rawjson.Members {
	raw, ok := m.Get(name)
	if !ok {
		return slices.Clone(m)
	}
	return panel.With(m, nil, name, panel.Emptied(raw))
}

// historiesIn gives the histories of session_content.json.
func historiesIn(m rawjson.Members) (rawjson.Members, error) {
	raw, ok := m.Get("histories")
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	threads, err := rawjson.Object(raw)
	if err != nil {
		return nil, err
	}
	return threads, checkHistories(threads)
}

// checkHistories refuses what cannot be threads.
func checkHistories(m rawjson.Members) error {
	for _, x := range m {
		if x.Name == "" || x.Name == events.AllThreads || len(x.Name) > events.MaxIDLen {
			return &rawjson.FieldError{Path: "histories", Reason: fmt.Sprintf("%.40q is no name of a model", x.Name)}
		}
		if _, ok := panel.List(m, x.Name); !ok {
			return &rawjson.FieldError{Path: fmt.Sprintf("histories[%q]", x.Name), Reason: "want an array"}
		}
	}
	return nil
}

// begin settles when the session began, by the best witness there is.
func (u *unit) begin() error {
	if u.created == "" && len(u.summaries) > 0 {
		u.created = panel.Time(panel.Object(u.summaries[0]), "timestamp")
	}
	if u.created != "" {
		return nil
	}
	names := make([]string, len(u.files))
	for i, s := range u.files {
		names[i] = s.full
	}
	var err error
	u.created, err = u.tree.Oldest(names)
	return err
}
