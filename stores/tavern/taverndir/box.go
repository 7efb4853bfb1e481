package taverndir

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

// head is the file with an inbox's read mark or a queue's settings.
type head struct {
	Seen      int              `json:"seen,omitempty"` // turns
	Title     string           `json:"title,omitempty"`
	CreatedAt events.Timestamp `json:"createdAt,omitempty"`
	Owner     string           `json:"owner,omitempty"`
	OnEmpty   string           `json:"onEmpty,omitempty"` // instruction for a worker that finds nothing to do
	Settings  events.Raw       `json:"settings,omitempty"`
}

// boxOf returns the box of a session, and its id below the kind.
func boxOf(s *projector.Session) (box int, id string, ok bool) {
	for i, b := range boxes {
		if id, ok := strings.CutPrefix(s.Subject.ID, b.kind+"/"); ok && s.Ledger.Kind == b.kind && id != "" {
			return i, id, true
		}
	}
	return 0, "", false
}

// turnsOf returns the turns of a session that have files.
func turnsOf(s *projector.Session, box int) []projector.Turn {
	if th := s.Threads[boxes[box].thread]; th != nil {
		return th.Turns
	}
	return nil
}

// headOf returns the head of a session.
func headOf(s *projector.Session, box int) head {
	l := s.Ledger
	h := head{Title: l.Text("title"), Owner: l.Text("owner"), OnEmpty: l.Text("onEmpty"), CreatedAt: l.CreatedAt}
	h.Settings, _ = l.Fields.Get("settings")
	if seen := seenOf(l, box); seen > 0 {
		for _, t := range turnsOf(s, box) {
			if t.Offset <= seen {
				h.Seen++
			}
		}
	}
	return h
}

// seenOf returns the offset up to which a box was seen, or 0.
func seenOf(l *projector.Ledger, box int) events.Offset {
	var cursors map[string]events.Offset
	if raw, ok := l.Fields.Get("cursors"); !ok || rawjson.Unmarshal(raw, &cursors) != nil {
		return 0
	}
	return cursors[boxes[box].thread]
}

// isEmpty reports whether all fields of a head are empty.
func (h head) isEmpty() bool {
	return h.Seen == 0 && h.Title == "" && h.CreatedAt == "" && h.Owner == "" && h.OnEmpty == "" && h.Settings == nil
}

func (h head) content() ([]byte, error) {
	text, err := rawjson.Marshal(h)
	return append(text, '\n'), err
}

// boxFiles returns the files of an inbox or a queue.
func boxFiles(ctx context.Context, src layouts.Source, s *projector.Session, box int, at string) ([]layouts.File, error) {
	list, err := boxHistories(ctx, src, s, box)
	if err != nil {
		return nil, err
	}
	var files []layouts.File
	add := func(name string, content []byte) {
		files = append(files, layouts.File{Path: name, Mode: layouts.FileMode(0), Way: layouts.Exact,
			Write: func(w io.Writer) error { _, err := w.Write(content); return err }})
	}
	for i, t := range turnsOf(s, box) {
		name, content, err := turnFile(t, i+1, box == 0, list[i])
		if err != nil {
			return nil, err
		}
		add(path.Join(at, boxes[box].sub, name), content)
	}
	if h := headOf(s, box); !h.isEmpty() {
		content, err := h.content()
		if err != nil {
			return nil, err
		}
		add(path.Join(at, boxes[box].head), content)
	}
	return files, nil
}

// boxHistories returns the history of each turn of a box that is an item of a queue.
func boxHistories(ctx context.Context, src layouts.Source, s *projector.Session, box int) ([]itemHistory, error) {
	turns := turnsOf(s, box)
	list := make([]itemHistory, len(turns))
	if boxes[box].kind != events.KindQueue {
		return list, nil
	}
	queue := strings.TrimPrefix(s.Subject.ID, projector.QueueSession(""))
	items := itemsOf(queue, turns)
	all, err := historiesOf(ctx, src, queue, s.Ledger, src.Loader().Upto, items)
	for n, i := range items {
		if err == nil && i != nil {
			list[n] = all.of(i.ID)
		}
	}
	return list, err
}

// boxFolder is an inbox or a queue in the imported folder.
type boxFolder struct {
	box       int
	id        string
	at        string // its folder
	turns     []events.Entry
	histories []itemHistory // the history of each turn that is an item
	head      head
	files     []*sessiondir.File
}

// boxes finds the inboxes and queues of the folder. Files in another spelling are left out.
func (im *importer) boxes(files []string) ([]*boxFolder, error) {
	byDir := make(map[string]*boxFolder)
	var list []*boxFolder
	for _, name := range files { // sorted, so that the turns are in order
		box, id, below, ok := boxAt(name)
		if !ok || im.flat {
			continue
		}
		bf := byDir[fmt.Sprint(box, id)]
		if bf == nil {
			bf = &boxFolder{box: box, id: id, at: strings.Join(strings.Split(name, "/")[:2], "/")}
		}
		f, ok, err := im.boxFile(bf, name, below)
		if err != nil {
			return nil, err
		}
		if !ok {
			im.Report.Notes = append(im.Report.Notes, layouts.Problem{File: name, Reason: "does not have the form of a file of " + boxes[box].kind + " " + id + " is: kept as it is"})
			continue
		}
		if bf.files = append(bf.files, f); len(bf.files) == 1 {
			byDir[fmt.Sprint(box, id)], list = bf, append(list, bf)
		}
	}
	for _, bf := range list {
		im.checkHead(bf)
	}
	return slices.DeleteFunc(list, func(bf *boxFolder) bool { return len(bf.files) == 0 }), nil
}

// checkHead drops a head that cannot belong to the box's turns. Its file is kept as it is.
func (im *importer) checkHead(bf *boxFolder) {
	name := path.Join(bf.at, boxes[bf.box].head)
	at := slices.IndexFunc(bf.files, func(f *sessiondir.File) bool { return f.Full == name })
	if at < 0 || bf.headFits() {
		return
	}
	bf.files, bf.head = slices.Delete(bf.files, at, at+1), head{}
	im.Report.Notes = append(im.Report.Notes, layouts.Problem{File: name, Reason: "has values that are invalid for " + boxes[bf.box].kind + " " + bf.id + ": kept as it is"})
}

// headFits reports whether the box's turns can have this head, and an export would write the same file.
func (bf *boxFolder) headFits() bool {
	h := bf.head
	if h.isEmpty() || h.Seen < 0 || h.Seen > len(bf.turns) || string(h.Settings) == "null" {
		return false
	}
	if dead := projector.QueueSettingsOf(h.Settings).Dead; dead != "" && dead != "hold" && dead != projector.PassDead {
		return false
	}
	if h.Seen = 0; h.CreatedAt == "" {
		return h.isEmpty()
	}
	return bf.created().Validate() == nil
}

func (bf *boxFolder) created() *events.SessionCreated {
	h := bf.head
	return &events.SessionCreated{Kind: boxes[bf.box].kind, CreatedAt: h.CreatedAt, Title: h.Title, Owner: h.Owner, Settings: h.Settings}
}

// boxFile reads a file of a box, if an export would write it the same.
func (im *importer) boxFile(bf *boxFolder, name, below string) (*sessiondir.File, bool, error) {
	f, err := im.Tree.File(name)
	if err != nil || f.Size > sessiondir.WholeLimit(im.Target)/2 || f.Mode != 0 {
		return nil, false, nil //nolint:nilerr // the importer reads it again as a plain file
	}
	if f.Data, err = im.Tree.Read(f, f.Size+1); err != nil {
		return nil, false, err
	}
	f.Size = int64(len(f.Data))
	if below == boxes[bf.box].head {
		var h head
		if err := rawjson.Unmarshal(f.Data, &h); err != nil {
			return f, false, nil //nolint:nilerr // not a head
		}
		content, err := h.content()
		own := err == nil && bytes.Equal(content, f.Data) && name == path.Join(bf.at, below) && bf.isWellPlaced()
		if own {
			bf.head = h
		}
		return f, own, nil
	}
	n := numberOf(below)
	e, h, want, own := readTurn(bf.box, below, n, f.Data)
	if !own || n != len(bf.turns)+1 || !bf.isWellPlaced() || path.Join(bf.at, boxes[bf.box].sub, want) != name {
		return f, false, nil
	}
	bf.turns, bf.histories = append(bf.turns, e), append(bf.histories, h)
	if reason := oddMeta(bf.box, e); reason != "" {
		im.Problem(name, 0, reason)
	}
	return f, true, nil
}

// oddMeta returns which value of a turn's meta is unknown, or "". Readers of the box skip such a turn.
func oddMeta(box int, e events.Entry) string {
	meta, err := rawjson.Object(e.Meta)
	if err != nil {
		return ""
	}
	if class, ok := meta.Get("class"); ok && box == 0 && string(class) != `"quick"` && string(class) != `"deep"` && string(class) != `""` {
		return fmt.Sprintf("class: %s: want quick or deep: kept as it is, no receiver gets it", class)
	}
	if priority, ok := meta.Get("priority"); ok && box == 1 {
		if n, err := strconv.Atoi(string(priority)); err != nil || n < 0 || n > 9 {
			return fmt.Sprintf("priority: %s: want 0 to 9: kept as it is, no worker gets it", priority)
		}
	}
	return ""
}

// isWellPlaced reports whether the folder has the name of the box's.
func (bf *boxFolder) isWellPlaced() bool {
	name := flat(bf.id)
	return path.Base(bf.at) == name || path.Base(bf.at) == apartDir(name)
}

func turnOf(e events.Entry) projector.Turn {
	return projector.Turn{Raw: e.Turn, Bytes: e.Bytes, ID: e.ID, Timestamp: e.Timestamp, Run: e.Run, Meta: e.Meta}
}

// bringBox imports an inbox or a queue. It appends turns after those that the store has.
func (im *importer) bringBox(ctx context.Context, bf *boxFolder) error {
	id := boxes[bf.box].kind + "/" + bf.id
	sub := events.Session(im.Target.Namespace(), id)
	if err := sub.Validate(); err != nil {
		return err
	}
	s, err := im.Load(ctx, id)
	if err != nil {
		return err
	}
	had := turnsOf(s, bf.box)
	if err := bf.agrees(s, had); err != nil {
		im.Report.Sessions++
		im.Report.Refused = append(im.Report.Refused, id)
		im.Problem(path.Dir(bf.files[0].Full), 0, err.Error()+": import into another namespace (--namespace)")
		return nil
	}
	before := im.Report.Events
	if err := im.appendBox(ctx, bf, s, len(had)); err != nil {
		return err
	}
	outcome := &im.Report.Changed
	switch {
	case s.Offset() == 0:
		outcome = &im.Report.Added
	case im.Report.Events == before:
		outcome = &im.Report.Unchanged
	}
	im.Finish(sessiondir.Folder{Files: bf.files}, outcome)
	for range bf.files {
		im.Report.Files.Add(layouts.Exact)
	}
	return nil
}

// agrees returns an error if a session's turns differ from the files, as far as both go.
func (bf *boxFolder) agrees(s *projector.Session, had []projector.Turn) error {
	for i := range min(len(had), len(bf.turns)) {
		_, a, err := turnFile(had[i], i+1, bf.box == 0, itemHistory{})
		if err != nil {
			return err
		}
		if _, b, err := turnFile(turnOf(bf.turns[i]), i+1, bf.box == 0, itemHistory{}); err != nil || !bytes.Equal(a, b) {
			return fmt.Errorf("turn %d of the session differs", i+1)
		}
	}
	have, want := headOf(s, bf.box), bf.head
	have.Seen, want.Seen = 0, 0
	if !have.isEmpty() && !want.isEmpty() && !sameHead(have, want) {
		return fmt.Errorf("the session has other settings")
	}
	return nil
}

func sameHead(a, b head) bool {
	x, err := a.content()
	y, other := b.content()
	return err == nil && other == nil && bytes.Equal(x, y)
}

// appendBox appends what the session lacks.
func (im *importer) appendBox(ctx context.Context, bf *boxFolder, s *projector.Session, had int) error {
	var list []events.Payload
	if h := bf.head; h.CreatedAt != "" && s.Ledger.Created == 0 {
		list = append(list, bf.created())
		if h.OnEmpty != "" {
			list = append(list, &events.SessionUpdated{Set: events.Fields{text("onEmpty", h.OnEmpty)}, Reason: "import"})
		}
	}
	for _, e := range bf.turns[min(had, len(bf.turns)):] {
		list = append(list, &events.TurnAppended{Entries: []events.Entry{e}})
	}
	if err := im.appendSeries(ctx, s, list); err != nil {
		return err
	}
	if err := im.appendSeen(ctx, bf, s); err != nil {
		return err
	}
	return im.appendHistories(ctx, bf, s)
}

func (im *importer) appendSeries(ctx context.Context, s *projector.Session, list []events.Payload) error {
	if len(list) == 0 {
		return nil
	}
	var evs []events.Event
	for i, p := range list {
		e, err := events.New(im.Source, s.Subject, p)
		if err != nil {
			return err
		}
		evs = append(evs, im.Named(e, s.Offset(), fmt.Sprint("number ", i), ""))
	}
	expect := log.At(0)
	if s.Offset() > 0 {
		expect = log.Since(s.Offset(), events.TypeTurnAppended, events.TypeSessionCreated, events.TypeSessionUpdated)
	}
	_, added, err := im.Target.AppendSeries(ctx, s.Subject, expect, evs...)
	im.Added(added)
	return err
}

// appendSeen moves the cursor of an inbox forward to the folder's. It never moves back.
func (im *importer) appendSeen(ctx context.Context, bf *boxFolder, s *projector.Session) error {
	if bf.head.Seen <= headOf(s, bf.box).Seen {
		return nil
	}
	now, err := im.Load(ctx, s.Subject.ID)
	if err != nil {
		return err
	}
	turns := turnsOf(now, bf.box)
	if bf.head.Seen > len(turns) {
		return nil
	}
	value, err := rawjson.Marshal(map[string]events.Offset{boxes[bf.box].thread: turns[bf.head.Seen-1].Offset})
	if err != nil {
		return err
	}
	return im.appendSeries(ctx, now, []events.Payload{&events.SessionUpdated{Set: events.Fields{{Name: "cursors", Value: value}}, Reason: "import"}})
}

// importBoxes imports inboxes and queues, and returns the files that it used.
func (im *importer) importBoxes(ctx context.Context, files []string) ([]string, error) {
	list, err := im.boxes(files)
	if err != nil {
		return nil, err
	}
	var done []string
	for _, bf := range list {
		id := boxes[bf.box].kind + "/" + bf.id
		if !im.Wants(id) && !im.Wants(bf.id) {
			continue
		}
		var names []string
		for _, f := range bf.files {
			names = append(names, f.Full)
		}
		err := im.unkept(ctx, names...)
		if err == nil {
			err = sessiondir.Retry(ctx, func(bool) error { return im.bringBox(ctx, bf) })
		}
		if err := im.Settle(ctx, path.Dir(bf.files[0].Full), err); err != nil {
			return nil, err
		}
		done = append(done, names...)
	}
	slices.Sort(done)
	return done, nil
}
