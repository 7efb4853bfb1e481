package erratadir

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// folder is the folder of a session, or the file beside sessions/ that is a session, during an import.
type folder struct {
	sessiondir.Folder

	metadata   rawjson.Members // of session_metadata.json, without its runs
	summaries  []events.Raw
	content    rawjson.Members // of session_content.json, without histories and runs
	contents   []events.Raw
	threads    rawjson.Members // arrays of turns
	prompts    []events.Raw
	checkpoint events.Raw
	recipe     []byte

	birth   string           // created_at, as the file has it
	created events.Timestamp // best estimate of the beginning
}

// list lists the files of a session.
func (u *folder) list() error {
	own, ok := beside[u.ID]
	if !ok {
		return u.List()
	}
	f, err := u.Tree.File(own)
	if err == nil {
		u.Files = append(u.Files, f)
	}
	return err
}

// file returns the file at a path, or nil.
func (u *folder) file(name string) *sessiondir.File {
	return u.find(func(f *sessiondir.File) bool { return f.Path == name })
}

// of returns the parsed file of a part, or nil.
func (u *folder) of(p part) *sessiondir.File {
	return u.find(func(f *sessiondir.File) bool { return f.Value && partOf(u.ID, f.Path) == p })
}

// has reports whether there is a file for a part, parsed or not.
func (u *folder) has(p part) bool {
	return u.find(func(f *sessiondir.File) bool { return partOf(u.ID, f.Path) == p }) != nil
}

func (u *folder) find(is func(*sessiondir.File) bool) *sessiondir.File {
	if i := slices.IndexFunc(u.Files, is); i >= 0 {
		return u.Files[i]
	}
	return nil
}

// Birth implements sessiondir.Found.
func (u *folder) Birth() string { return u.birth }

// Scan implements sessiondir.Found.
func (u *folder) Scan(context.Context, view) error {
	for _, f := range u.Files {
		if err := u.scanFile(f, partOf(u.ID, f.Path)); err != nil {
			return err
		}
	}
	return u.begin()
}

func (u *folder) scanFile(f *sessiondir.File, p part) error {
	if p == partOther || f.Size > int64(u.Limit) {
		if p != partOther {
			f.Problem(0, fmt.Sprintf("longer than %d bytes: kept as it is", u.Limit))
		}
		return u.Tree.Hash(f)
	}
	data, err := u.Tree.Read(f, f.Size+1)
	if err != nil {
		return err
	}
	f.Sum, f.Size = sessiondir.SumOf(data), int64(len(data))
	switch p {
	case partRecipe:
		u.recipe, f.Value = data, true
	case partPrompts:
		return u.scanPrompts(f, data)
	default:
		u.scanJSON(f, p, data)
	}
	return nil
}

// scanPrompts reads the prompts, each a JSON string. It reports other lines.
func (u *folder) scanPrompts(f *sessiondir.File, data []byte) error {
	f.Value = true
	defer f.EndLines()
	return sessiondir.EachLineOf(data, u.Limit, func(t sessiondir.TurnLine) error {
		t.Spells(&f.Format)
		switch {
		case t.Err != nil:
			f.BadLine(t.Line, sessiondir.ReasonOf(t.Err))
		case t.Raw == nil:
		case t.Raw[0] != '"':
			f.BadLine(t.Line, "not a prompt: want a JSON string")
		default:
			u.prompts = append(u.prompts, t.Raw)
		}
		return nil
	})
}

// scanJSON parses a JSON file. It reports a file that cannot be parsed, and imports nothing from it.
func (u *folder) scanJSON(f *sessiondir.File, p part, data []byte) {
	v, err := sessiondir.ReadJSON(data, sessiondir.TurnInside+2)
	if err == nil {
		err = v.NoObject
	}
	if err == nil {
		err = u.take(p, v.Raw, v.Object)
	}
	if err != nil {
		f.Problem(sessiondir.LineOf(data, err), sessiondir.ReasonOf(err)+": kept as it is, nothing is read from it")
		return
	}
	f.Value, f.Format = true, v.Format
	if p == partMetadata {
		if _, said := v.Object.Get("created_at"); said && u.created == "" {
			f.Problem(0, "created_at: want a time such as 2026-01-02T03:04:05.678-08:00 (kept as it is)")
		}
	}
}

// take reads the value of a file.
func (u *folder) take(p part, raw events.Raw, m rawjson.Members) error {
	switch p {
	case partMetadata:
		runs, ok := panel.List(m, "runs")
		if !ok {
			return &rawjson.FieldError{Path: "runs", Reason: "want an array"}
		}
		u.summaries, u.metadata = runs, withoutRuns(m)
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
		u.content = slices.DeleteFunc(withoutRuns(m), func(x rawjson.Member) bool { return x.Name == "histories" && len(threads) > 0 })
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

// withoutRuns returns an object with its array of runs emptied.
func withoutRuns(m rawjson.Members) rawjson.Members {
	raw, ok := m.Get("runs")
	if !ok {
		return slices.Clone(m)
	}
	return panel.With(m, nil, "runs", panel.Emptied(raw))
}

// historiesIn returns the histories of session_content.json.
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

// checkHistories refuses members that cannot be threads.
func checkHistories(m rawjson.Members) error {
	for _, x := range m {
		if x.Name == "" || x.Name == events.AllThreads || len(x.Name) > events.MaxIDLen {
			return &rawjson.FieldError{Path: "histories", Reason: fmt.Sprintf("%.40q is not a model name", x.Name)}
		}
		if _, ok := panel.List(m, x.Name); !ok {
			return &rawjson.FieldError{Path: fmt.Sprintf("histories[%q]", x.Name), Reason: "want an array"}
		}
	}
	return nil
}

// begin sets the beginning of the session to the best estimate.
func (u *folder) begin() error {
	if u.created == "" && len(u.summaries) > 0 {
		u.created = panel.Time(panel.Object(u.summaries[0]), "timestamp")
	}
	if u.created != "" {
		return nil
	}
	var err error
	u.created, err = u.Oldest()
	return err
}

// Same implements sessiondir.Found.
func (u *folder) Same(ctx context.Context, v view, name string) (bool, error) {
	out, ok, err := v.File(ctx, name)
	f := u.file(name)
	if err != nil || !ok || f == nil {
		return !ok && f == nil, err
	}
	if out.Format.Mode != f.Mode {
		return false, nil
	}
	return out.Holds(ctx, f.Sum)
}
