package evals

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
)

// Save replaces the content of the conversation.
//
// If the content extends the stored one, Save appends one event with the new steps. If it differs, Save appends one
// event with the new steps and references to the kept ones; the old content stays readable by its position. Equal
// content appends no event. Steps are equal if their tokens are: stored steps keep their bytes.
//
// Content with a Revision is saved on the condition that the steps are still those of the revision. Otherwise the
// error matches log.ErrConflict: load again. Save sets the Revision. After log.ErrUnknown, save again.
func (c *Conversation) Save(ctx context.Context, data *Data) (Saved, error) {
	if err := data.validate(); err != nil {
		return Saved{}, err
	}
	if data.Revision == 0 {
		return c.save(ctx, func(*projector.Session) *Data { return data })
	}
	s, err := c.full(ctx)
	if err != nil {
		return Saved{}, err
	}
	if data.Revision > s.Offset() {
		return Saved{}, &log.ConflictError{Subject: c.s.Subject(), Want: data.Revision, Have: s.Offset()}
	}
	p, err := planSave(s, data)
	if err != nil || p.payload == nil {
		return c.saved(data, p, s.Offset(), log.Ack{}, err)
	}
	ack, err := c.s.Append(ctx, log.Since(data.Revision, projector.MoveTypes()...), p.payload)
	return c.saved(data, p, ack.Last, ack, err)
}

// save saves the content that the function returns for the current session.
func (c *Conversation) save(ctx context.Context, content func(*projector.Session) *Data) (Saved, error) {
	var data *Data
	var p savePlan
	var at events.Offset
	ack, err := c.update(ctx, projector.MoveTypes(), func(o *projector.Outline) (events.Payload, error) {
		s, err := o.Session(ctx)
		if err != nil {
			return nil, err
		}
		data, at = content(s), s.Offset()
		p, err = planSave(s, data)
		return p.payload, err
	})
	return c.saved(data, p, max(at, ack.Last), ack, err)
}

// saved returns the result of a save and records the content's offset.
func (c *Conversation) saved(data *Data, p savePlan, at events.Offset, ack log.Ack, err error) (Saved, error) {
	if err != nil {
		return Saved{}, err
	}
	data.Revision = at
	c.see(len(data.Steps), data.ID)
	return Saved{Change: p.change, New: p.fresh, Ack: ack}, nil
}

// savePlan is the change after which the thread has the content.
type savePlan struct {
	payload events.Payload // nil: none
	change  Change
	fresh   int
}

// saving compares content with a thread.
type saving struct {
	thread *projector.Thread // nil: missing
	have   *decoding
	lines  []events.Raw // lines of the content for the file
	steps  []Step
}

func planSave(s *projector.Session, data *Data) (savePlan, error) {
	v := saving{thread: s.Threads[events.MainThread], have: &decoding{c: &Data{}}, steps: data.Steps}
	if v.thread != nil {
		have, err := decodeThread(s)
		if err != nil {
			return savePlan{}, err
		}
		v.have = have
	}
	if err := v.encode(data); err != nil {
		return savePlan{}, err
	}
	return v.plan(v.meta(data))
}

// encode sets the line of each step. A step that is unchanged since it was loaded under the same id keeps its line,
// with all its bytes.
func (v *saving) encode(data *Data) error {
	have := v.have.c
	same := v.thread != nil && data.ID == have.ID
	for i, s := range data.Steps {
		as := same && i < len(have.Steps) && s.Equal(have.Steps[i]) && (i > 0 || equalRaw(data.Metadata, have.Metadata))
		if as {
			v.lines = append(v.lines, have.Steps[i].raw)
			continue
		}
		line, err := encodeStep(s, i, data.ID, data.Metadata)
		if err != nil {
			return rawError("", err)
		}
		v.lines = append(v.lines, line)
	}
	return nil
}

// equalRaw compares tokens. nil equals only nil.
func equalRaw(a, b events.Raw) bool {
	return (a == nil) == (b == nil) && rawjson.Equal(a, b)
}

// meta returns the new metadata of the thread. They have id and metadata of a conversation while no line has them.
func (v *saving) meta(data *Data) events.Raw {
	var old events.Raw
	if v.thread != nil {
		old = v.thread.Meta
	}
	fields, err := rawjson.Object(old)
	_, shadows := fields.Get(fieldConversationMetadata)
	if len(v.steps) > 0 {
		if data.Metadata == nil && shadows {
			return edited(old, fieldConversationMetadata, nil)
		}
		return old
	}
	meta := old
	if err != nil {
		meta = events.Raw("{}")
	}
	meta = edited(meta, fieldConversationID, rawjson.AppendString(nil, data.ID))
	return edited(meta, fieldConversationMetadata, data.Metadata)
}

// edited returns a valid object with a member changed; nil removes it.
func edited(object events.Raw, name string, value events.Raw) events.Raw {
	out, err := rawjson.DeleteMember(object, name)
	if err == nil && value != nil {
		out, err = rawjson.SetMember(object, name, value)
	}
	if err != nil {
		return object
	}
	return out
}

func (v *saving) plan(meta events.Raw) (savePlan, error) {
	kept := v.prefix()
	sameMeta := v.thread != nil && equalRaw(meta, v.thread.Meta)
	switch {
	case v.thread != nil && kept == len(v.have.c.Steps) && kept == len(v.lines) && sameMeta:
		return savePlan{}, nil
	case len(v.lines) > 0 && kept == len(v.have.c.Steps) && kept < len(v.lines):
		return v.extend(kept, meta, sameMeta), nil
	}
	return v.replace(meta), nil
}

// prefix returns the number of leading steps that are stored at the same index.
func (v *saving) prefix() int {
	n := 0
	for n < min(len(v.lines), len(v.have.c.Steps)) && rawjson.Equal(v.lines[n], v.have.c.Steps[n].raw) {
		n++
	}
	return n
}

func (v *saving) extend(kept int, meta events.Raw, sameMeta bool) savePlan {
	p := &events.TurnAppended{}
	for i := kept; i < len(v.lines); i++ {
		p.Entries = append(p.Entries, steps.Entry(v.lines[i], v.steps[i].fields))
	}
	if meta != nil && !sameMeta {
		p.ThreadMeta = map[string]events.Raw{events.MainThread: meta}
	}
	return savePlan{payload: p, change: Extension, fresh: len(p.Entries)}
}

func (v *saving) replace(meta events.Raw) savePlan {
	items := []events.Item{}
	fresh := 0
	for i, from := range v.matches() {
		if from < 0 {
			fresh++
			e := steps.Entry(v.lines[i], v.steps[i].fields)
			items = append(items, events.Item{Turn: e.Turn, ID: e.ID, Timestamp: e.Timestamp})
			continue
		}
		at := v.have.positions[from]
		if n := len(items); n > 0 && items[n-1].Keep != nil && items[n-1].Keep[1] == at {
			items[n-1].Keep[1]++
			continue
		}
		items = append(items, events.Item{Keep: &[2]int{at, at + 1}})
	}
	change := Replacement
	if v.thread == nil {
		change = Extension // there was no content to replace
	}
	p := &events.ThreadReplaced{Threads: map[string]events.Replacement{events.MainThread: {Items: items, Meta: meta}}, Others: "keep", Reason: "save"}
	return savePlan{payload: p, change: change, fresh: fresh}
}

// matches returns for each line the index of the equal stored step, or -1. Kept steps keep their order: it matches
// both ends first, then from left to right.
func (v *saving) matches() []int {
	have := v.have.c.Steps
	list := make([]int, len(v.lines))
	first := v.prefix()
	last := 0
	for last < min(len(v.lines), len(have))-first && rawjson.Equal(v.lines[len(v.lines)-1-last], have[len(have)-1-last].raw) {
		last++
	}
	unused := make(map[string][]int)
	for i := first; i < len(have)-last; i++ {
		key := string(rawjson.AppendCompact(nil, have[i].raw))
		unused[key] = append(unused[key], i)
	}
	next := first // the first stored step that can still match
	for i := range list {
		switch {
		case i < first:
			list[i] = i
		case i >= len(list)-last:
			list[i] = len(have) - len(list) + i
		default:
			list[i] = -1
			for _, at := range unused[string(rawjson.AppendCompact(nil, v.lines[i]))] {
				if at >= next {
					list[i], next = at, at+1
					break
				}
			}
		}
	}
	return list
}
