package foreign

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// A file beyond the size of a value is kept in pieces: its document has this
// media type and lists them.
const (
	piecesType = "application/vnd.tally.pieces+json"
	pieceSize  = events.MaxBlobPart
)

// pieces is the content of such a document.
type pieces struct {
	Size   int64    `json:"size"`
	SHA256 string   `json:"sha256"`
	Pieces []string `json:"pieces"` // datarefs, in order
}

// Attributes of documents of kind file.
const (
	AttrRoot   = "root"
	AttrPath   = "path" // below the root
	AttrMarker = "marker"
	AttrSHA256 = "sha256"
	AttrMode   = "mode"
)

// Stored is a document as the log has it, deleted or not.
type Stored struct {
	Doc    events.Subject
	Last   events.Offset // its last record
	Exists bool
	Meta   events.DocMeta
	Sum    string // of the file that it holds
}

// Load reads a document. What it holds is hashed where it does not say.
func Load(ctx context.Context, src formats.Source, doc events.Subject) (Stored, error) {
	st := Stored{Doc: doc}
	d := &projector.Document{Subject: doc}
	var newest events.Record
	for rec, err := range src.Loader().Source.Read(ctx, events.Range{Subject: doc}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			st.Last = max(st.Last, damage.Offset)
			continue
		}
		if err != nil {
			return st, err
		}
		d.Apply(rec)
		newest, st.Last = rec, rec.Offset
	}
	if !d.Exists() {
		return st, nil
	}
	st.Exists, st.Meta = true, d.Last().Meta
	if st.Sum = st.Meta.Attributes[AttrSHA256]; st.Sum == "" {
		h := sha256.New()
		if err := WriteDocument(ctx, src, doc, newest.Offset, h); err != nil {
			return st, err
		}
		st.Sum = HexSum(h)
	}
	return st, nil
}

// WriteDocument writes the file that a document holds at an offset, 0 for now.
func WriteDocument(ctx context.Context, src formats.Source, doc events.Subject, at events.Offset, w io.Writer) error {
	d, err := src.Loader().Document(ctx, doc, at)
	if err != nil {
		return err
	}
	if d.Last().ContentType != piecesType {
		_, err = w.Write(d.Data)
		return err
	}
	var list pieces
	if err := rawjson.Unmarshal(d.Data, &list); err != nil {
		return fmt.Errorf("%s: %v", doc, err)
	}
	for _, ref := range list.Pieces {
		sum, ok := events.ParseBlobRef(ref)
		if !ok {
			return fmt.Errorf("%s: %q is not a piece", doc, ref)
		}
		piece, err := projector.Blob(ctx, src.Loader().Source, doc.Namespace, sum, MaxValue(src))
		if err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// Stamp is what the events of an import carry: the name of the layout, of which
// their ids are made, and their CloudEvents source.
type Stamp struct{ Format, Source string }

// WholeFile is a file to keep whole.
type WholeFile struct {
	Doc     events.Subject
	Meta    events.DocMeta
	Size    int64
	Sum     string
	Content func() (io.ReadCloser, error)
}

// PutDocument keeps a file whole. It returns the events added: none if the
// document holds it already. dry writes nothing and says what would be added.
func (s Stamp) PutDocument(ctx context.Context, target formats.Target, f WholeFile, dry bool) (int, error) {
	return s.change(ctx, target, f.Doc, dry, func(have Stored) (events.Event, bool, error) {
		if have.Exists && have.Sum == f.Sum && have.Meta.Attributes[AttrMode] == f.Meta.Attributes[AttrMode] {
			return events.Event{}, false, nil
		}
		data, contentType, err := readWhole(ctx, target, f)
		e := events.Event{Source: s.Source, Type: events.TypeDocumentWritten, Subject: f.Doc, ContentType: contentType, Data: data}
		e.ID = events.DerivedID(s.Format, f.Doc.String(), have.Last.String(), "file", f.Sum)
		return e.WithExtension(events.ExtDoc, f.Meta.String()), true, err
	})
}

// DeleteDocument takes a document away, if it is there.
func (s Stamp) DeleteDocument(ctx context.Context, target formats.Target, doc events.Subject, dry bool) (int, error) {
	return s.change(ctx, target, doc, dry, func(have Stored) (events.Event, bool, error) {
		if !have.Exists {
			return events.Event{}, false, nil
		}
		e, err := events.New(s.Source, doc, &events.DocumentDeleted{Reason: "the file is gone from the imported folder"})
		e.ID = events.DerivedID(s.Format, doc.String(), have.Last.String(), "gone")
		return e, true, err
	})
}

// change appends to a document what follows from what it is, if anything does, and
// returns the number of events added. If somebody else wrote to it meanwhile, it decides
// again.
func (s Stamp) change(ctx context.Context, target formats.Target, doc events.Subject, dry bool,
	decide func(Stored) (e events.Event, needed bool, err error)) (int, error) {
	for try := range MaxTries {
		have, err := Load(ctx, target, doc)
		if err != nil {
			return 0, err
		}
		e, needed, err := decide(have)
		if err != nil || !needed {
			return 0, err
		}
		if dry {
			return 1, nil
		}
		ack, err := target.Append(ctx, doc, log.At(have.Last), e)
		switch {
		case err == nil && ack.Duplicate:
			return 0, nil
		case err == nil:
			return 1, nil
		case !IsRace(err):
			return 0, err
		}
		if err := Pause(ctx, try); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%s: %w", doc, log.ErrConflict)
}

// readWhole returns the data of a file's document: the file, or the list of its
// pieces, each stored before.
func readWhole(ctx context.Context, target formats.Target, f WholeFile) ([]byte, string, error) {
	r, err := f.Content()
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	h := sha256.New()
	var data []byte
	contentType := events.ContentTypeRaw
	if f.Size <= WholeLimit(target) {
		var b bytes.Buffer
		if _, err := io.Copy(&b, io.LimitReader(io.TeeReader(r, h), f.Size+1)); err != nil {
			return nil, "", err
		}
		data = b.Bytes()
		if utf8.Valid(data) {
			contentType = "text/plain; charset=utf-8"
		}
	} else if data, err = putPieces(ctx, target, io.TeeReader(r, h)); err != nil {
		return nil, "", err
	} else {
		contentType = piecesType
	}
	if HexSum(h) != f.Sum {
		return nil, "", ErrChanged
	}
	return data, contentType, nil
}

// WholeLimit is the size up to which one event holds a file, if need be by
// reference.
func WholeLimit(src formats.Source) int64 { return max(MaxValue(src), events.MaxData) }

func putPieces(ctx context.Context, target formats.Target, r io.Reader) ([]byte, error) {
	list := pieces{}
	whole, buf := sha256.New(), make([]byte, pieceSize)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			ref, err := target.PutBlob(ctx, buf[:n])
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

// FormatMode spells the mode of a file for an attribute.
func FormatMode(mode int64) string { return strconv.FormatInt(mode, 8) }

// ParseMode reads it.
func ParseMode(text string) int64 {
	mode, err := strconv.ParseInt(text, 8, 32)
	if err != nil {
		return 0
	}
	return mode
}

// MaxValue is the largest value that a source resolves.
func MaxValue(src formats.Source) int64 {
	if limit := src.Loader().MaxValue; limit > 0 {
		return limit
	}
	return events.MaxValue
}

// Payload reads the payload of a record.
func Payload(ctx context.Context, src formats.Source, at events.Offset) (events.Payload, error) {
	source := src.Loader().Source
	rec, err := source.Record(ctx, at)
	if err != nil {
		return nil, err
	}
	if rec, err = projector.Resolve(ctx, source, rec, MaxValue(src)); err != nil {
		return nil, err
	}
	f := projector.Decode(rec)
	return f.Payload, f.Invalid
}
