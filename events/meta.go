package events

import "fmt"

// ItemMeta is the meta of a queue item's turn. A turn's meta may be any JSON; only the meta of items has this form.
type ItemMeta struct {
	ID        string    `json:"id"`
	Owner     string    `json:"owner,omitempty"`
	DueAt     Timestamp `json:"dueAt,omitempty"`     // not before this time
	ExpiresAt Timestamp `json:"expiresAt,omitempty"` // not from this time on, unless a worker has it by then
	After     []string  `json:"after,omitempty"`     // items that must be finished first
	Priority  int       `json:"priority,omitempty"`  // 0 to 9; the highest comes first
	Unknown   Fields    `json:",unknown"`
}

// ItemMetaOf decodes the meta of an item's turn.
func ItemMetaOf(meta Raw) (ItemMeta, error) {
	var m ItemMeta
	if err := setInto("meta", meta, &m); err != nil {
		return ItemMeta{}, err
	}
	for i, id := range m.After {
		if err := required(fmt.Sprintf("meta.after[%d]", i), id); err != nil {
			return ItemMeta{}, err
		}
	}
	if m.Priority < 0 || m.Priority > 9 {
		return ItemMeta{}, wrong("meta.priority", "%d: want 0 to 9", m.Priority)
	}
	return m, first(required("meta.id", m.ID), m.DueAt.check("meta.dueAt"), m.ExpiresAt.check("meta.expiresAt"))
}

// LineMeta is the meta of a turn that is a line of an agent's file. It has the parts of the line that the turn lacks.
type LineMeta struct {
	EOL      *string `json:"eol,omitempty"`      // line ending; nil: \n
	Before   string  `json:"before,omitempty"`   // blank bytes before the line
	Redacted int     `json:"redacted,omitempty"` // number of secrets removed before it was stored
	Unknown  Fields  `json:",unknown"`
}

// LineMetaOf decodes the meta of a line's turn. Without meta it returns the zero LineMeta.
func LineMetaOf(meta Raw) (LineMeta, error) {
	var m LineMeta
	if len(meta) == 0 {
		return m, nil
	}
	if err := setInto("meta", meta, &m); err != nil {
		return LineMeta{}, err
	}
	return m, notNegative("meta.redacted", int64(m.Redacted))
}
