package tallydir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// source is a file of an imported folder: its hashes and format and, for a small folder, its values.
type source struct {
	*sessiondir.File
	role   role
	same   bool       // rendering produces the same bytes
	render string     // hash of the rendering, if that differs
	raw    events.Raw // the value of a JSON file in a small folder

	outcome  string           // of a run
	finished events.Timestamp // end of a run; "": its result has none

	*lines // of conversation.jsonl
	traces int
}

// exact reports whether the state renders the file.
func (s *source) exact() bool { return s.Value && s.same }

// folder is a conversation's folder during an import.
type folder struct {
	sessiondir.Folder
	files   []*source        // of Files, in the same order
	size    int64            // total size when it was listed
	birth   string           // createdAt, as meta.json has it
	created events.Timestamp // best estimate of the beginning

	limits    *limits // shared by the conversations of the import
	release   func()  // frees the reserved memory
	stepsSame bool    // the session has the steps of conversation.jsonl
}

// Birth implements sessiondir.Found.
func (f *folder) Birth() string { return f.birth }

// IsAt implements sessiondir.Found.
func (f *folder) IsAt(dir string) bool { return dir == f.Dir }

// Close implements sessiondir.Found.
func (f *folder) Close() { f.release() }

// Finish implements sessiondir.Found.
func (f *folder) Finish() {
	for _, s := range f.files {
		f.In.Report.Files.Add(sessiondir.WayOf(!s.exact(), s.Format))
	}
}

// Scan implements sessiondir.Found.
func (f *folder) Scan(ctx context.Context, v *view) error {
	return f.limits.scan(ctx, func() error { return f.scan(v.s.Threads) })
}

// name returns the name of the folder, which may differ from the one made of the id.
func (f *folder) name() string { return path.Base(f.Dir) }

// small reports whether the folder's content stays in memory until it is stored. Files of a larger folder are read
// again.
func (f *folder) small() bool { return f.size <= streamBeyond }

// file returns the file at a path, or nil.
func (f *folder) file(name string) *source {
	for _, s := range f.files {
		if s.Path == name {
			return s
		}
	}
	return nil
}

// list lists the files of a conversation's folder.
func (f *folder) list() error {
	err := f.List()
	for _, file := range f.Files {
		f.files = append(f.files, &source{File: file, role: roleOf(file.Path)})
		f.size += file.Size
	}
	return err
}

// scan reads every file once. have has the session's threads.
func (f *folder) scan(have projector.Threads) error {
	taken := make(map[events.RunRef]bool)
	for _, s := range f.files {
		if s.role.part == partRun {
			if taken[s.role.run] {
				s.role = role{} // two names of one run: the second is kept as it is
			}
			taken[s.role.run] = true
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

// scanFile reads one file. Step traces wait for the steps.
func (f *folder) scanFile(s *source, have projector.Threads) error {
	switch s.role.part {
	case partOther:
		return f.Tree.Hash(s.File)
	case partTurns:
		return f.scanTurns(s, have.Turns(events.MainThread))
	case partTraces:
		return nil
	}
	return f.scanJSON(s)
}

// sum returns the hash of a file. It is computed on demand, because a comparison shows whether the state renders the
// file.
func (f *folder) sum(s *source) (string, error) {
	if s.Sum == "" && s.Data != nil {
		s.Sum = sessiondir.SumOf(s.Data)
	}
	if s.Sum == "" {
		if err := f.Tree.Hash(s.File); err != nil {
			return "", err
		}
	}
	return s.Sum, nil
}

// rendered returns the hash of the rendered value of a file.
func (f *folder) rendered(s *source) (string, error) {
	if s.same {
		return f.sum(s)
	}
	return s.render, nil
}

func (f *folder) scanTurns(s *source, have []projector.Turn) error {
	traces, err := f.traceFormat()
	if err != nil {
		return err
	}
	sc := lineScan{file: s.File, have: have, keep: f.small()}
	if f.small() {
		err = f.scanSmallTurns(s, &sc, traces)
	} else {
		err = f.scanLargeTurns(s, &sc, traces)
	}
	if err != nil {
		return err
	}
	s.Format, s.Value = s.lines.format, true
	s.EndLines()
	return nil
}

// scanSmallTurns scans a file in memory, where it stays. It compares the step traces, if there are any, with those
// computed from the turns.
func (f *folder) scanSmallTurns(s *source, sc *lineScan, layout *events.FileFormat) error {
	var traces *matcher
	if layout != nil {
		t := f.file(tracesName)
		data, err := f.Tree.Read(t.File, t.Size+1) // a grown file differs
		if err != nil {
			return err
		}
		traces = &matcher{rest: data}
		sc.derive = &deriver{out: arrayWriter{w: traces, format: *layout}}
	}
	var err error
	if s.Data, err = f.Tree.Read(s.File, math.MaxInt64); err != nil {
		return err
	}
	m := &matcher{rest: s.Data}
	sc.render.W = m
	sc.each = func(take func(sessiondir.TurnLine) error) error { return sessiondir.EachLineOf(s.Data, f.Limit, take) }
	if s.lines, err = sc.run(); err != nil {
		return err
	}
	s.lines.traced = traces != nil && traces.matched() && !s.lines.format.Compact // compact turns would change the traces, which have the turns' white space
	if s.same = m.matched(); s.same {
		return nil
	}
	s.Sum = sessiondir.SumOf(s.Data)
	s.render, err = s.lines.rendered()
	return err
}

// scanLargeTurns scans a file as it is read. It compares by hashes.
func (f *folder) scanLargeTurns(s *source, sc *lineScan, layout *events.FileFormat) error {
	r, err := f.Tree.Open(s.Full)
	if err != nil {
		return err
	}
	defer r.Close()
	file, render, traces := sha256.New(), sha256.New(), sha256.New()
	sc.render.W = render
	if layout != nil {
		sc.derive = &deriver{out: arrayWriter{w: traces, format: *layout}}
	}
	sc.each = func(take func(sessiondir.TurnLine) error) error {
		return sessiondir.EachLine(io.TeeReader(r, file), f.Limit, take)
	}
	if s.lines, err = sc.run(); err != nil {
		return err
	}
	s.Sum, s.render = sessiondir.HexSum(file), sessiondir.HexSum(render)
	s.same = s.Sum == s.render
	if layout != nil {
		want, err := f.sum(f.file(tracesName))
		s.lines.traced = want == sessiondir.HexSum(traces) && !s.lines.format.Compact
		return err
	}
	return nil
}

// traceFormat guesses the format of stepTraces.json, nil if the file is missing.
func (f *folder) traceFormat() (*events.FileFormat, error) {
	s := f.file(tracesName)
	if s == nil {
		return nil, nil
	}
	head, tail, err := f.ends(s)
	if err != nil {
		return nil, err
	}
	if s.Size < 2 {
		return &events.FileFormat{}, nil
	}
	format := arrayFormat(head, tail)
	return &format, nil
}

// ends returns the first bytes of a file, and its last two.
func (f *folder) ends(s *source) (head, tail []byte, err error) {
	r, err := f.Tree.Open(s.Full)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	head, tail = make([]byte, 128), make([]byte, 2)
	n, err := io.ReadFull(r, head)
	if head = head[:n]; err != nil || s.Size <= int64(n) {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		return head, head[max(0, n-2):], err
	}
	if at, ok := r.(io.Seeker); ok {
		_, err = at.Seek(s.Size-2, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, r, s.Size-2-int64(n))
	}
	if err == nil {
		n, err = io.ReadFull(r, tail)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // it was truncated meanwhile
	}
	return head, tail[:n], err
}

// read reads a file of one JSON value. It returns nil if the file is larger than a value may be.
func (f *folder) read(s *source) ([]byte, error) {
	if s.Size > int64(f.Limit) {
		return nil, nil
	}
	return f.Tree.Read(s.File, int64(f.Limit))
}

// insideOf returns the nesting depth of a part's value in its event.
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
		s.Problem(0, fmt.Sprintf("longer than %d bytes", f.Limit))
		return f.Tree.Hash(s.File)
	}
	s.Size = int64(len(data))
	v, err := sessiondir.ReadJSON(data, insideOf(s.role.part))
	if err != nil || !v.Exact || !f.small() {
		s.Sum = sessiondir.SumOf(data)
	}
	if err != nil {
		s.Problem(sessiondir.LineOf(data, err), sessiondir.ReasonOf(err))
		return nil
	}
	s.Value, s.Format, s.same = true, v.Format, v.Exact
	if !v.Exact {
		s.render = sessiondir.SumOf(sessiondir.SpellJSON(v.Raw, v.Format))
	}
	if f.small() {
		s.Data, s.raw = data, v.Raw
	}
	object := v.Object
	if s.role.part == partRun {
		s.outcome, s.finished = steps.Outcome(s.role.run.Kind, object)
	}
	switch {
	case v.NoObject != nil:
		s.Problem(0, "not an object: "+v.NoObject.Error()+" (kept as it is)")
	case s.role.part == partMeta:
		f.birth, f.created = object.Text("createdAt"), steps.TimeIn(object, "createdAt")
		if _, said := object.Get("createdAt"); said && f.created == "" {
			s.Problem(0, "createdAt: want a time such as 2026-01-02T03:04:05.678Z (kept as it is)")
		}
	case s.role.part == partRun:
		s.nameRun(object)
	}
	return nil
}

// nameRun sets the id of a run with a shortened file name to the id inside the file.
func (s *source) nameRun(object rawjson.Members) {
	name := strings.TrimSuffix(path.Base(s.Path), runSuffix)
	if id := object.Text("runId"); layouts.IsShortened(name) && layouts.FileName(id) == name {
		s.role.run.ID = id
	}
}

// scanTraces decides how step traces are kept: derived if they can be computed from the steps, as a thread if that
// restores the file, else whole.
func (f *folder) scanTraces() error {
	s := f.file(tracesName)
	if s == nil {
		return nil
	}
	layout, err := f.traceFormat()
	if err != nil {
		return err
	}
	if t := f.file(turnsName); t != nil && t.lines.traced {
		s.Value, s.same, s.Format = true, true, *layout
		s.Format.Derived = true
		return nil
	}
	if _, err := f.sum(s); err != nil {
		return err
	}
	data, err := f.read(s)
	if err != nil || data == nil {
		return err
	}
	elements, err := readArray(data)
	if err != nil {
		s.Problem(sessiondir.LineOf(data, err), sessiondir.ReasonOf(err))
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
	s.Value, s.render, s.Format, s.traces = true, sessiondir.HexSum(h), *layout, len(elements)
	s.same = s.render == s.Sum
	return nil
}

// readArray returns the elements of a file that is one array. It refuses elements that cannot be turns.
func readArray(data []byte) ([]events.Raw, error) {
	elements, err := rawjson.Array(bytes.TrimPrefix(data, []byte(sessiondir.BOM)))
	if err != nil {
		return nil, err
	}
	for i, raw := range elements {
		if sessiondir.Nesting(raw) > rawjson.MaxDepth-sessiondir.TurnInside {
			return nil, &rawjson.FieldError{Path: fmt.Sprintf("[%d]", i), Reason: "nested too deep"}
		}
	}
	return elements, nil
}

// begin sets the beginning of the conversation to the best estimate.
func (f *folder) begin() error {
	if t := f.file(turnsName); f.created == "" && t != nil {
		f.created = t.lines.at
	}
	if f.created != "" {
		return nil
	}
	var err error
	f.created, err = f.Oldest()
	return err
}
