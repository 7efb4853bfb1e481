package api

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/web"
	"github.com/tallylog/tally/projector"
)

// documentList is a page of documents.
type documentList struct {
	Items []documentRow `json:"items"`
	Next  string        `json:"next,omitempty"` // the value of after for the next page
}

// documentRow has the members that tally doc ls -o json prints.
type documentRow struct {
	Kind        string        `json:"kind"`
	ID          string        `json:"id"`
	Title       string        `json:"title,omitempty"`
	ContentType string        `json:"contentType,omitempty"`
	Bytes       int64         `json:"bytes"`
	SHA256      string        `json:"sha256,omitempty"`
	Owner       string        `json:"owner,omitempty"`
	Layer       string        `json:"layer,omitempty"`
	Revisions   int           `json:"revisions"`
	First       events.Offset `json:"first"`
	Last        events.Offset `json:"last"`
	UpdatedAt   string        `json:"updatedAt,omitempty"`
	ExpiresAt   string        `json:"expiresAt,omitempty"`
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return string(events.TimestampOf(t))
}

func listDocuments(c *web.Call) error {
	limit, err := c.Int("limit", 100, 1, maxList)
	if err != nil {
		return err
	}
	q := projector.DocumentQuery{Kind: c.Query("kind"), Prefix: c.Query("prefix"), Owner: c.Query("owner"), Layer: c.Query("layer"), Link: c.Query("link"), Limit: limit, After: c.Query("after")}
	list, next, err := c.Store.Documents().List(c.Context(), q)
	if projector.Tolerate(err) != nil {
		return err
	}
	out := documentList{Items: []documentRow{}, Next: next}
	for _, d := range list {
		out.Items = append(out.Items, documentRow{d.Subject.Kind, render.ID(d.Subject.ID), d.Title, d.ContentType, d.Bytes, d.SHA256, d.Owner, d.Layer, d.Revisions,
			d.First, d.Last, timeText(d.UpdatedAt), timeText(d.ExpiresAt)})
	}
	return c.JSON(200, out)
}

func readDocument(c *web.Call) error {
	at := c.Query("at")
	doc, err := c.Store.Documents().ReadAt(c.Context(), c.Path("kind"), c.Path("id"), at)
	if err != nil {
		return err
	}
	if doc.Erased != "" {
		return &events.ErasedError{Offset: doc.Offset, Receipt: doc.Erased}
	}
	m := doc.Meta
	set := func(name, value string) {
		if value != "" {
			c.SetHeader(name, url.PathEscape(value))
		}
	}
	set("Tally-Title", m.Title)
	set("Tally-Owner", m.Owner)
	set("Tally-Layer", m.Layer)
	set("Tally-Expires", string(m.ExpiresAt))
	for name, v := range map[string]any{"Tally-Attributes": m.Attributes, "Tally-Links": m.Links} {
		if text, err := rawjson.Marshal(v); err == nil && string(text) != "null" {
			set(name, string(text))
		}
	}
	// A document may be a page: a browser saves it, and does not run it.
	c.SetHeader("Content-Type", contentType(doc.ContentType))
	c.SetHeader("Content-Disposition", "attachment")
	c.SetHeader("Content-Security-Policy", "sandbox; default-src 'none'")
	c.SetHeader("ETag", web.ETag(doc.Offset))
	c.SetHeader("Tally-Offset", fmt.Sprint(uint64(doc.Offset)))
	fix(c, at, doc.Offset)
	return c.Bytes(200, doc.Data)
}

// contentType returns a media type for a header. A stored one may be any text.
func contentType(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return events.ContentTypeRaw
	}
	return text
}

// revision is the answer to a write.
type revision struct {
	Offset      events.Offset    `json:"offset"`
	ID          string           `json:"id"` // of the event
	Time        events.Timestamp `json:"time"`
	ContentType string           `json:"contentType"`
	Size        int              `json:"size"`
	Durability  string           `json:"durability"`
}

func writeDocument(c *web.Call) error {
	w := tally.Write{Data: c.Body, ContentType: c.Request.Header.Get("Content-Type")}
	err := metadata(c, &w)
	if err != nil {
		return err
	}
	key, err := c.Key()
	if err != nil {
		return err
	}
	if key != "" {
		w.ID = key + ".0"
	}
	base, create, err := c.Match()
	if err != nil {
		return err
	}
	kind, id, docs := c.Path("kind"), c.Path("id"), c.Store.Documents()
	if err := mayAppend(c.Token, events.Event{Type: events.TypeDocumentWritten, Subject: events.Document(c.Store.Namespace(), kind, id)}); err != nil {
		return err
	}
	var rev projector.Revision
	status := 200
	switch {
	case create:
		status = 201
		rev, err = docs.Create(c.Context(), kind, id, w)
	case base > 0:
		rev, err = docs.Update(c.Context(), kind, id, base, w)
	default:
		return &web.Problem{Code: "preconditionRequired", Detail: "say what is replaced, with If-Match: its ETag, or that nothing is, with If-None-Match: *"}
	}
	if err = absent(c, err, base); !events.IsStored(err) {
		return err
	}
	c.SetHeader("ETag", web.ETag(rev.Offset))
	c.SetHeader("Tally-Offset", fmt.Sprint(uint64(rev.Offset)))
	return c.JSON(status, revision{rev.Offset, rev.ID, rev.Time, rev.ContentType, rev.Size, c.Store.Log.Durability().String()})
}

// absent returns the problem of a write whose condition does not hold, and err for other errors.
func absent(c *web.Call, err error, base events.Offset) error {
	switch {
	case errors.Is(err, tally.ErrExists):
		have := events.Offset(0)
		if now, err := c.Store.Documents().Read(c.Context(), c.Path("kind"), c.Path("id")); err == nil {
			have = now.Offset
		}
		return precondition(0, have, err.Error())
	case base > 0 && errors.Is(err, tally.ErrNotFound):
		return precondition(base, 0, err.Error())
	}
	return taken(err)
}

// metadata reads the metadata of a write from its headers, whose values are percent-encoded.
func metadata(c *web.Call, w *tally.Write) error {
	var attributes, links, expires string
	for name, to := range map[string]*string{"Tally-Title": &w.Title, "Tally-Owner": &w.Owner, "Tally-Layer": &w.Layer,
		"Tally-Attributes": &attributes, "Tally-Links": &links, "Tally-Expires": &expires} {
		text, err := c.Header(name)
		if err == nil {
			text, err = url.PathUnescape(text)
		}
		if err != nil || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return invalid(name, "want text without control characters, percent-encoded")
		}
		*to = text
	}
	if attributes != "" {
		if err := rawjson.Unmarshal([]byte(attributes), &w.Attributes); err != nil {
			return invalid("Tally-Attributes", err.Error())
		}
	}
	if links != "" {
		if err := rawjson.Unmarshal([]byte(links), &w.Links); err != nil {
			return invalid("Tally-Links", err.Error())
		}
	}
	if expires != "" {
		at, err := time.Parse(time.RFC3339, expires)
		if err != nil {
			return invalid("Tally-Expires", "want a time such as 2026-08-22T10:00:00Z")
		}
		w.ExpiresAt = at
	}
	return nil
}

func deleteDocument(c *web.Call) error {
	base, create, err := c.Match()
	if err != nil {
		return err
	}
	if base == 0 || create {
		return &web.Problem{Code: "preconditionRequired", Detail: "say what is deleted, with If-Match: its ETag"}
	}
	a, err := c.Store.Documents().Delete(c.Context(), c.Path("kind"), c.Path("id"), base, c.Query("reason"))
	if err = absent(c, err, base); !events.IsStored(err) {
		return err
	}
	return answerAck(c, 200, ackOf(a))
}

// historyList is a part of a document's history, newest first.
type historyList struct {
	Items []projector.Revision `json:"items"`
	Next  events.Offset        `json:"next,omitempty"` // the value of below for the rest
}

func readHistory(c *web.Call) error {
	limit, err := c.Int("limit", 100, 1, maxList)
	if err != nil {
		return err
	}
	below, err := c.Offset("below")
	if err != nil {
		return err
	}
	list, err := c.Store.Documents().History(c.Context(), c.Path("kind"), c.Path("id"), below, limit+1)
	if projector.Tolerate(err) != nil {
		return err
	}
	out := historyList{Items: []projector.Revision{}}
	for i, change := range list {
		if i == limit {
			out.Next = list[i-1].Offset
			break
		}
		out.Items = append(out.Items, change.Revision)
	}
	return c.JSON(200, out)
}
