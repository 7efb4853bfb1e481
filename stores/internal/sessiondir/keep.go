package sessiondir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Keep keeps a file whole, in a document that records its origin. If the document holds the file already, Keep
// appends nothing.
func (in *Intake) Keep(ctx context.Context, doc events.Subject, at *events.Origin, f *File, links ...events.Link) error {
	return in.Change(ctx, doc, func(have Stored) (events.Event, bool, error) {
		meta := f.meta(at, links)
		if have.Exists && have.Sum == f.Sum && have.Meta.Attributes[attrMode] == meta.Attributes[attrMode] {
			return events.Event{}, false, nil
		}
		e, err := in.FileEvent(ctx, have, at, f, links...)
		return e, true, err
	})
}

// FileEvent returns the event by which a document holds a file and its origin. The event repeats the other metadata
// of the document.
func (in *Intake) FileEvent(ctx context.Context, have Stored, at *events.Origin, f *File, links ...events.Link) (events.Event, error) {
	data, contentType, err := in.wholeFile(ctx, f)
	e := events.Event{Source: in.Source, Type: events.TypeDocumentWritten, Subject: have.Doc, ContentType: contentType, Data: data}
	e.ID = events.DerivedID(in.Format, have.Doc.String(), have.Last.String(), "file", f.Sum)
	meta := f.meta(at, links)
	if have.Exists && have.Doc.Kind != events.KindFile {
		said := have.Meta
		said.Base, said.Attributes = have.Revision, maps.Clone(said.Attributes)
		delete(said.Attributes, attrMode)
		if said.Attributes == nil {
			said.Attributes = make(map[string]string)
		}
		maps.Copy(said.Attributes, meta.Attributes)
		meta = said
		if strings.HasPrefix(contentType, "text/") && isOfType(data, have.ContentType) {
			e.ContentType = have.ContentType
		}
	}
	return e.WithExtension(events.ExtDoc, meta.String()), err
}

// isOfType reports whether a text is valid for a content type.
func isOfType(text []byte, contentType string) bool {
	return strings.HasPrefix(contentType, "text/") || events.IsJSON(contentType) && rawjson.Check(text) == nil
}

// Drop deletes a document, if it exists.
func (in *Intake) Drop(ctx context.Context, doc events.Subject) error {
	return in.Change(ctx, doc, func(have Stored) (events.Event, bool, error) {
		if !have.Exists {
			return events.Event{}, false, nil
		}
		e, err := events.New(in.Source, doc, &events.DocumentDeleted{Reason: "the file is gone from the imported folder"})
		e.ID = events.DerivedID(in.Format, doc.String(), have.Last.String(), "gone")
		return e, true, err
	})
}

// Change appends the event that decide returns for the document's state, if one is needed. If another writer appended
// meanwhile, Change decides again.
func (in *Intake) Change(ctx context.Context, doc events.Subject, decide func(Stored) (e events.Event, needed bool, err error)) error {
	for n := range maxAttempts {
		have, err := Load(ctx, in.Target, doc)
		if err != nil {
			return err
		}
		e, needed, err := decide(have)
		if err != nil || !needed {
			return err
		}
		ack, err := in.Target.Append(ctx, doc, log.At(have.Last), e)
		if err == nil && !ack.Duplicate {
			in.Added(1)
		}
		if err == nil || !isRace(err) {
			return err
		}
		if err := pause(ctx, n); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", doc, log.ErrConflict)
}

// meta returns the metadata of a file that is kept whole.
func (f *File) meta(at *events.Origin, links []events.Link) events.DocMeta {
	attributes := map[string]string{AttrRoot: at.Root, attrPath: KeyOf(path.Clean(f.Full)), attrMarker: at.Marker, attrSHA256: f.Sum}
	if f.Mode != 0 {
		attributes[attrMode] = strconv.FormatInt(f.Mode, 8)
	}
	return events.DocMeta{Attributes: attributes, Links: links}
}

// wholeFile returns the data of a file's document: the file, or the list of its pieces, which it stores first.
func (in *Intake) wholeFile(ctx context.Context, f *File) (data []byte, contentType string, err error) {
	r, err := in.Tree.content(f)
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	h := sha256.New()
	contentType = events.ContentTypeRaw
	if f.Size > WholeLimit(in.Target) {
		contentType = projector.PiecesType
		data, err = in.putPieces(ctx, io.TeeReader(r, h))
	} else {
		data, err = io.ReadAll(io.LimitReader(io.TeeReader(r, h), f.Size+1))
		if utf8.Valid(data) {
			contentType = "text/plain; charset=utf-8"
		}
	}
	if err == nil && HexSum(h) != f.Sum {
		err = ErrChanged
	}
	return data, contentType, err
}

// content opens a file, from memory if it is there.
func (t Tree) content(f *File) (io.ReadCloser, error) {
	if f.Data != nil {
		return io.NopCloser(bytes.NewReader(f.Data)), nil
	}
	return t.Open(f.Full)
}

func (in *Intake) putPieces(ctx context.Context, r io.Reader) ([]byte, error) {
	list := pieces{}
	whole, buf := sha256.New(), make([]byte, pieceSize)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			ref, err := in.Target.PutBlob(ctx, buf[:n])
			if err != nil {
				return nil, err
			}
			list.Pieces = append(list.Pieces, ref)
			list.Size += int64(n)
			whole.Write(buf[:n])
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	list.SHA256 = HexSum(whole)
	return rawjson.Marshal(list)
}
