package events

import "fmt"

// ItemMeta is what the meta of a turn says that is an item of a queue. A turn's meta may be
// any JSON: only who knows that the turn is an item reads it so.
type ItemMeta struct {
	ID        string    `json:"id"`
	Owner     string    `json:"owner,omitempty"`
	DueAt     Timestamp `json:"dueAt,omitempty"`     // not before
	ExpiresAt Timestamp `json:"expiresAt,omitempty"` // not from then on, unless somebody has it by then
	After     []string  `json:"after,omitempty"`     // items that must be finished first
	Priority  int       `json:"priority,omitempty"`  // 0 to 9; the highest goes first
	Unknown   Fields    `json:",unknown"`
}

// ItemMetaOf reads the meta of an item's turn.
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

// LineMeta is what the meta of a turn says that is a line of somebody else's file, as far as
// the turn does not.
type LineMeta struct {
	EOL      *string `json:"eol,omitempty"`      // what ends the line; nil: \n
	Before   string  `json:"before,omitempty"`   // blank bytes before the line
	Redacted int     `json:"redacted,omitempty"` // places that were made unreadable before it was stored
	Unknown  Fields  `json:",unknown"`
}

// LineMetaOf reads the meta of a line's turn; without meta it is the zero LineMeta.
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
