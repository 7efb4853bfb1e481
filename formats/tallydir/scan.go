package tallydir

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/formats/internal/foreign"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// source is a file of a folder as the importer found it: hashes and lay-out, and of
// a small folder the values in it.
type source struct {
	path   string // inside the conversation's folder, or below the root
	full   string // below the root
	place  place
	size   int64
	mode   int64
	sum    string            // of the file
	format events.FileFormat // by which the state renders it
	value  bool              // the state gets a value from it
	render string            // of what that value gives when rendered
	raw    events.Raw        // the value of a JSON file, if the folder is small
	issues []formats.Problem
	*lines // of conversation.jsonl
	traces int
}

// exact reports whether the state renders the file.
func (s *source) exact() bool { return s.value && s.render == s.sum }

func (s *source) problem(line int, reason string) {
	s.issues = append(s.issues, formats.Problem{File: s.full, Line: line, Reason: reason})
}

// folder is a conversation's folder as the importer found it.
type folder struct {
	tree    foreign.Tree
	limit   int // bytes that a value may have
	name    string
	id      string
	files   []*source // sorted by path
	links   []string  // what is neither file nor folder
	size    int64
	birth   string           // createdAt of meta.json, as it stands there
	created events.Timestamp // best knowledge of the beginning
}

// small reports whether what was read of the folder is kept in memory until it is
// in the store. What a larger one holds is read again.
func (f *folder) small() bool { return f.size <= streamBeyond }

// file gives the file of a path, nil if the folder has none.
func (f *folder) file(path string) *source {
	for _, s := range f.files {
		if s.path == path {
			return s
		}
	}
	return nil
}

// list finds the files of a conversation's folder.
func (f *folder) list(dir string) error {
	entries, err := f.tree.Entries(path.Join(conversations, f.name, dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		rel := path.Join(dir, e.Name())
		switch {
		case e.IsDir():
			if err := f.list(rel); err != nil {
				return err
			}
		case !e.Type().IsRegular():
			f.links = append(f.links, path.Join(conversations, f.name, rel))
		default:
			s, err := newSource(e, rel, path.Join(conversations, f.name, rel))
			if err != nil {
				return err
			}
			s.place = placeOf(rel)
			f.files = append(f.files, s)
		}
	}
	return nil
}

func newSource(e fs.DirEntry, rel, full string) (*source, error) {
	info, err := e.Info()
	if err != nil {
		return nil, err
	}
	return &source{path: rel, full: full, size: info.Size(), mode: formats.ModeOf(info.Mode().Perm())}, nil
}

// scan reads every file once. have is what the session has, for the turns.
func (f *folder) scan(have projector.Threads) error {
	slices.SortFunc(f.files, func(a, b *source) int { return strings.Compare(a.path, b.path) })
	f.size = 0
	for _, s := range f.files {
		f.size += s.size
	}
	taken := make(map[events.RunRef]bool)
	for _, s := range f.files {
		if s.place.part == partRun {
			if taken[s.place.run] {
				s.place = place{} // two names of one run: the second is kept as it is
			}
			taken[s.place.run] = true
		}
		if err := f.scanFile(s, have); err != nil {
			return err
		}
	}
	if err := f.scanTraces(); err != nil {
		return err
	}
	return f.begin()
}

// scanFile reads one file. Step traces wait until the steps are known.
func (f *folder) scanFile(s *source, have projector.Threads) error {
	switch s.place.part {
	case partOther:
		return f.scanWhole(s)
	case partTurns:
		return f.scanTurns(s, have.Turns(events.MainThread))
	case partTraces:
		return nil
	}
	return f.scanJSON(s)
}

func (f *folder) scanWhole(s *source) error {
	r, err := f.tree.Open(s.full)
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	if s.size, err = io.Copy(h, r); err != nil {
		return err
	}
	s.sum = foreign.HexSum(h)
	return nil
}

func (f *folder) scanTurns(s *source, have []projector.Turn) error {
	layout, err := f.traceFormat()
	if err != nil {
		return err
	}
	r, err := f.tree.Open(s.full)
	if err != nil {
		return err
	}
	defer r.Close()
	if s.lines, err = scanLines(r, f.limit, have, layout, f.small()); err != nil {
		return err
	}
	s.sum, s.render, s.format, s.value = s.lines.sum, s.lines.render, s.lines.format, true
	for _, i := range s.lines.bad {
		s.problem(i.line, i.reason)
	}
	if s.lines.more > 0 {
		s.problem(0, fmt.Sprintf("and %d more such lines", s.lines.more))
	}
	return nil
}

// traceFormat guesses how stepTraces.json is laid out, nil if there is none.
func (f *folder) traceFormat() (*events.FileFormat, error) {
	s := f.file(tracesName)
	if s == nil {
		return nil, nil
	}
	r, err := f.tree.Root.Open(s.full)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	head, tail := make([]byte, 128), make([]byte, 2)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if s.size < 2 {
		return &events.FileFormat{}, nil
	}
	if _, err := r.ReadAt(tail, s.size-2); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	format := arrayFormat(head[:n], tail)
	return &format, nil
}

// read reads a file that is one JSON value. A larger one than a value may be gives
// nil.
func (f *folder) read(s *source) ([]byte, error) {
	if s.size > int64(f.limit) {
		return nil, nil
	}
	r, err := f.tree.Open(s.full)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	b.Grow(int(s.size) + bytes.MinRead)
	if _, err := io.Copy(&b, io.LimitReader(r, int64(f.limit))); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// insideOf gives how many containers stand around the value of a part in its event.
func insideOf(p part) int {
	if p == partTrajectory {
		return 2
	}
	return 1
}

func (f *folder) scanJSON(s *source) error {
	data, err := f.read(s)
	if err != nil {
		return err
	}
	if data == nil {
		s.problem(0, fmt.Sprintf("longer than %d bytes", f.limit))
		return f.scanWhole(s)
	}
	s.sum, s.size = foreign.SumOf(data), int64(len(data))
	v, err := foreign.ReadJSON(data, insideOf(s.place.part))
	if err != nil {
		s.problem(foreign.LineOf(data, err), foreign.ReasonOf(err))
		return nil
	}
	s.value, s.format, s.render = true, v.Format, s.sum
	if !v.Exact {
		s.render = foreign.SumOf(foreign.SpellJSON(v.Raw, v.Format))
	}
	if f.small() {
		s.raw = v.Raw
	}
	object, err := rawjson.Object(v.Raw)
	switch {
	case err != nil:
		s.problem(0, "no object: "+err.Error()+" (kept as it stands)")
	case s.place.part == partMeta:
		f.birth, f.created = memberText(object, "createdAt"), validTime(object, "createdAt")
		if _, said := object.Get("createdAt"); said && f.created == "" {
			s.problem(0, "createdAt: want a time such as 2026-01-02T03:04:05.678Z (kept as it stands)")
		}
	case s.place.part == partRun:
		s.nameRun(object)
	}
	return nil
}

// nameRun gives a run whose file name was shortened the id that stands inside.
func (s *source) nameRun(object rawjson.Members) {
	name := strings.TrimSuffix(path.Base(s.path), runSuffix)
	if id := memberText(object, "runId"); formats.IsShortened(name) && formats.FileName(id) == name {
		s.place.run.ID = id
	}
}

// scanTraces decides how step traces are kept: derived if they follow from the
// steps, as a thread if that gives the file again, else whole.
func (f *folder) scanTraces() error {
	s := f.file(tracesName)
	if s == nil {
		return nil
	}
	layout, err := f.traceFormat()
	if err != nil {
		return err
	}
	if err := f.scanWhole(s); err != nil {
		return err
	}
	if t := f.file(turnsName); t != nil && t.lines.derived == s.sum {
		s.value, s.render, s.format = true, s.sum, *layout
		s.format.Derived = true
		return nil
	}
	data, err := f.read(s)
	if err != nil || data == nil {
		return err
	}
	elements, err := readArray(data)
	if err != nil {
		s.problem(foreign.LineOf(data, err), foreign.ReasonOf(err))
		return nil
	}
	h := sha256.New()
	out := arrayWriter{w: h, format: *layout}
	for _, raw := range elements {
		if err := out.element(raw); err != nil {
			return err
		}
	}
	if err := out.end(); err != nil {
		return err
	}
	s.value, s.render, s.format, s.traces = true, foreign.HexSum(h), *layout, len(elements)
	return nil
}

// readArray gives the elements of a file that is one array, each fit to be a turn.
func readArray(data []byte) ([]events.Raw, error) {
	elements, err := rawjson.Array(bytes.TrimPrefix(data, []byte(foreign.BOM)))
	if err != nil {
		return nil, err
	}
	for i, raw := range elements {
		if foreign.Nesting(raw) > rawjson.MaxDepth-foreign.TurnInside {
			return nil, &rawjson.FieldError{Path: fmt.Sprintf("[%d]", i), Reason: "nested too deep"}
		}
	}
	return elements, nil
}

// begin settles when the conversation began, by the best witness there is.
func (f *folder) begin() error {
	if t := f.file(turnsName); f.created == "" && t != nil {
		f.created = t.lines.at
	}
	if f.created != "" {
		return nil
	}
	names := make([]string, len(f.files))
	for i, s := range f.files {
		names[i] = s.full
	}
	var err error
	f.created, err = f.tree.Oldest(names)
	return err
}
