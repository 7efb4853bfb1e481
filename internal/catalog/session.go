package catalog

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// sessionRow is the fold of one session: its row, and the state that the fold needs. Turns are counted but not stored.
type sessionRow struct {
	Session
	key     int64
	subject events.Subject
	history *projector.Timeline
	created events.Offset // of the effective session.created
	opened  events.Offset // of the record with the opening
	content events.Offset // of the first record with content that was not erased, inherited ones included; 0: all was erased, or there was no content
	set     fields        // fields that are set
	reached uint64        // step of the checkpoint with the largest step

	stored   bool // the table has a row
	blocks   int  // number of stored blocks of its history
	dirty    bool
	runs     map[events.RunRef]*runRow // changed since the last commit
	costs    map[costKey]*projector.Total
	progress []projector.Progress // since the last commit
}

func newSession(sub events.Subject) *sessionRow {
	return &sessionRow{
		Session: Session{Namespace: sub.Namespace, ID: sub.ID, Kind: events.KindOf(sub.ID), Spent: projector.Total{USD: "0"}},
		subject: sub, history: projector.NewTimeline(sub),
	}
}

// apply folds the next record, except for runs and costs.
func (s *sessionRow) apply(f projector.Fact) (projector.Verdict, error) {
	f = s.history.Bounded(f).Impossible(s.Kind, s.created, s.history.Last())
	v, err := s.history.Add(f)
	if err != nil {
		return v, err
	}
	s.Records++
	s.holds(f.Record)
	s.active(f)
	if v.Stale {
		s.Stale++
	}
	if v.Rejected != "" {
		s.Rejected++
		return v, nil
	}
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		s.create(f, p)
	case *events.SessionUpdated:
		s.describe(f.Offset, p.Raw)
		for _, field := range p.Set {
			s.update(field)
		}
	case *events.TurnAppended:
		for i := range p.Entries {
			s.TotalTurns += s.counts(p.Entries[i].Thread, 1)
		}
	case *events.ThreadReplaced:
		for name, r := range p.Threads {
			s.TotalTurns += s.counts(name, broughtBy(r))
		}
	case *events.SessionRewound:
		s.Rewinds++
	case *events.RunProgressed:
		s.Steps = max(s.Steps, p.Step)
	case *events.CheckpointSaved:
		s.reach(p)
	}
	return v, nil
}

// holds notes whether a record has content, or has lost it.
func (s *sessionRow) holds(rec events.Record) {
	switch {
	case rec.Erased() != "":
		s.set |= loses
	case s.content == 0 && rec.HasContent():
		s.content = rec.Offset
	}
}

// active updates the time of the last activity.
func (s *sessionRow) active(f projector.Fact) {
	at, isGuess := f.Latest(s.LastAt, s.set&guessed != 0)
	s.LastAt = at
	s.set &^= guessed
	if isGuess {
		s.set |= guessed
	}
}

// describe notes that a record holds the producer's stored form of the session.
func (s *sessionRow) describe(at events.Offset, raw events.Raw) {
	if len(raw) > 0 {
		s.Raw = at
	}
}

// reach notes the status of a checkpoint that was saved after a step.
func (s *sessionRow) reach(p *events.CheckpointSaved) {
	if step := uint64(max(p.Step, 0)); p.Kind == events.CheckpointStep && step >= s.reached {
		s.reached, s.Reached = step, p.Status
		s.Steps = max(s.Steps, p.Step)
	}
}

// total reads the totals that the session reports.
func (s *sessionRow) total(totals events.Raw) {
	members, _ := rawjson.Object(totals) // a value that is not an object has no members
	s.Steps, s.TotalTokens = max(s.Steps, countOf(members, "steps")), countOf(members.Object("usage"), "totalTokens")
}

// countOf returns a member that is a non-negative integer, else 0.
func countOf(m rawjson.Members, name string) int64 {
	raw, _ := m.Get(name)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// counts returns how many of n turns of a thread count. In a transcript only the main thread counts: the other threads
// hold log entries and subagents.
func (s *sessionRow) counts(thread string, n int) int {
	if s.Kind == events.KindTranscript && thread != events.MainThread {
		return 0
	}
	return n
}

// broughtBy returns the number of new turns in a replacement.
func broughtBy(r events.Replacement) int {
	n := 0
	for _, item := range r.Items {
		if item.Keep == nil {
			n++
		}
	}
	return n
}

// opens reports whether a record may contain the opening.
func (s *sessionRow) opens(f projector.Fact) bool {
	p, ok := f.Payload.(*events.TurnAppended)
	return !ok || len(p.Entries) == 0 || s.counts(p.Entries[0].Thread, 1) > 0
}

func (s *sessionRow) create(f projector.Fact, p *events.SessionCreated) {
	s.created, s.Kind = f.Offset, p.Kind
	if s.set&startSaid == 0 {
		s.CreatedAt = p.CreatedAt
	}
	s.describe(f.Offset, p.Raw)
	if p.Parent != nil {
		s.Parent = p.Parent.Session
	}
	if p.Fork != nil {
		s.Fork = *p.Fork
	}
	for _, f := range []struct{ name, value string }{{"title", p.Title}, {"project", p.Project}, {"cwd", p.CWD}} {
		if column, bit := s.field(f.name); s.set&bit == 0 && f.value != "" { // an earlier update has newer values
			*column = f.value
			s.set |= bit
		}
	}
}

// An Opening returns the first message of a user in a record, as a line, or "".
type Opening func(projector.Fact) string

// maxAbout is the maximum length of a stored goal or opening, in bytes.
const maxAbout = 200

// open stores the first message of a user.
func (s *sessionRow) open(text string, at events.Offset) {
	if text != "" {
		s.Opening, s.opened = projector.Cut(text, maxAbout), at
	}
}

// aim reads the goal of a simulation.
func (s *sessionRow) aim(trajectory events.Raw) {
	members, _ := rawjson.Object(trajectory) // a value that is not an object has no goal
	s.Goal = projector.Cut(strings.Join(strings.Fields(members.Text("goal")), " "), maxAbout)
}

// fields is a set of session fields that have columns.
type fields uint64

// startSaid is set if the session reports its own start time.
const startSaid fields = 16

// guessed is set if no record has a time of its own.
const guessed fields = 32

// loses is set if a record was erased.
const loses fields = 64

// field returns the column of a session field, or nil if it has none, and its bit in the stored set.
func (s *sessionRow) field(name string) (*string, fields) {
	switch name {
	case "title":
		return &s.Title, 1
	case "status":
		return &s.Status, 2
	case "project":
		return &s.Project, 4
	case "cwd":
		return &s.CWD, 8
	}
	return nil, 0
}

func (s *sessionRow) update(f events.Field) {
	column, bit := s.field(f.Name)
	switch {
	case f.Name == "trajectory":
		s.aim(f.Value)
	case f.Name == "models":
		s.Models = listed(f.Value)
	case f.Name == "totals":
		s.total(f.Value)
	case f.Name == "startedAt":
		s.begin(f.Value)
	case f.Name == "finishedAt":
		text, _ := rawjson.String(f.Value) // null and other non-texts are not a time
		s.FinishedAt = events.Timestamp(text)
	case column == nil:
	case string(f.Value) == "null":
		*column = ""
		s.set &^= bit
	default:
		*column, _ = rawjson.String(f.Value) // a non-text shows as ""
		s.set |= bit
	}
}

// listed returns a list of texts as a line of bounded length, or "" if the value is not a list.
func listed(value events.Raw) string {
	list, err := rawjson.Array(value)
	if err != nil {
		return ""
	}
	var names []string
	for _, raw := range list {
		if name, err := rawjson.String(raw); err == nil && name != "" {
			names = append(names, name)
		}
	}
	return projector.Cut(strings.Join(names, ", "), maxAbout)
}

// begin stores the start time that the session reports. It takes precedence over the creation time.
func (s *sessionRow) begin(value events.Raw) {
	if text, _ := rawjson.String(value); text != "" { // null and other non-texts are not a time
		s.CreatedAt = events.Timestamp(text)
		s.set |= startSaid
	}
}

// settle computes the columns that follow from the history.
func (s *sessionRow) settle() (err error) {
	s.First, s.Head = s.history.First(), s.history.Last()
	s.Turns, s.Erased = s.history.Turns(), s.content == 0 && s.set&loses != 0
	if s.Kind == events.KindTranscript {
		if s.Turns, err = s.history.TurnsAt(events.MainThread, s.Head); err != nil {
			return err
		}
	}
	s.Live, err = s.history.Live(s.Head)
	return err
}

// state encodes the state that is neither in the row nor in the marks.
func (s *sessionRow) state() []byte {
	b := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(s.created)), uint64(s.opened))
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.set)), s.reached)
	b = binary.AppendUvarint(b, uint64(s.content))
	return append(b, s.history.Rest()...)
}

// restore decodes the output of state.
func (s *sessionRow) restore(state []byte, blocks [][]byte) error {
	var head [5]uint64
	for i := range head {
		value, n := binary.Uvarint(state)
		if n <= 0 {
			return errors.New("the state is cut off")
		}
		head[i], state = value, state[n:]
	}
	s.created, s.opened, s.set, s.reached = events.Offset(head[0]), events.Offset(head[1]), fields(head[2]), head[3]
	s.content = events.Offset(head[4])
	var err error
	s.history, err = projector.DecodeTimeline(s.subject, blocks, state)
	s.blocks = len(blocks)
	return err
}

// footprint returns the approximate memory of the session, in bytes.
func (s *sessionRow) footprint() int {
	return 1232 + len(s.Title) + len(s.Goal) + len(s.Opening) + len(s.Project) + len(s.CWD) + 16*len(s.Live) + s.history.Footprint()
}
