package tallydir

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
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
	attrRoot   = "root"
	attrPath   = "path" // below the root
	attrMarker = "marker"
	attrSHA256 = "sha256"
	attrMode   = "mode"
)

// documentOf names the document of a file that is kept whole.
func documentOf(ns, root, path string) events.Subject {
	id := root + "/" + path
	if len(id) > events.MaxIDLen {
		dir := ""
		if strings.HasPrefix(path, conversations+"/") && strings.Count(path, "/") > 1 {
			dir = conversations + "/=~/" // as many folders as tell a session's file from the root's
		}
		sum := sha256.Sum256([]byte(path))
		id = root[:min(len(root), 255)] + "/" + dir + "=~" + hex.EncodeToString(sum[:])
	}
	return events.Document(ns, events.KindFile, id)
}

// isRootFile reports whether a document of kind file is one of a root itself, not
// of a session.
func isRootFile(id, root string) bool {
	path, ok := strings.CutPrefix(id, root+"/")
	rest, _ := strings.CutPrefix(path, conversations+"/")
	return ok && !strings.Contains(rest, "/")
}

// stored is a document as the log has it, deleted or not.
type stored struct {
	doc    events.Subject
	last   events.Offset // its last record
	exists bool
	meta   events.DocMeta
	sum    string // of the file that it holds
}

// load reads a document. What it holds is hashed where it does not say.
func load(ctx context.Context, src formats.Source, doc events.Subject) (stored, error) {
	st := stored{doc: doc}
	d := &projector.Document{Subject: doc}
	var newest events.Record
	for rec, err := range src.Loader().Source.Read(ctx, events.Range{Subject: doc}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			st.last = max(st.last, damage.Offset)
			continue
		}
		if err != nil {
			return st, err
		}
		d.Apply(rec)
		newest, st.last = rec, rec.Offset
	}
	if !d.Exists() {
		return st, nil
	}
	st.exists, st.meta = true, d.Last().Meta
	if st.sum = st.meta.Attributes[attrSHA256]; st.sum == "" {
		h := sha256.New()
		if err := writeDocument(ctx, src, doc, newest.Offset, h); err != nil {
			return st, err
		}
		st.sum = hexSum(h)
	}
	return st, nil
}

// writeDocument writes the file that a document holds at an offset, 0 for now.
func writeDocument(ctx context.Context, src formats.Source, doc events.Subject, at events.Offset, w io.Writer) error {
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
			return fmt.Errorf("%s: %q is no piece", doc, ref)
		}
		piece, err := projector.Blob(ctx, src.Loader().Source, doc.Namespace, sum, maxValue(src))
		if err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// wholeFile is a file to keep whole.
type wholeFile struct {
	doc     events.Subject
	meta    events.DocMeta
	size    int64
	sum     string
	content func() (io.ReadCloser, error)
}

// putDocument keeps a file whole. It returns the events added: none if the
// document holds it already. dry writes nothing and says what would be added.
func putDocument(ctx context.Context, target formats.Target, f wholeFile, dry bool) (int, error) {
	for try := range maxTries {
		have, err := load(ctx, target, f.doc)
		if err != nil {
			return 0, err
		}
		if have.exists && have.sum == f.sum && have.meta.Attributes[attrMode] == f.meta.Attributes[attrMode] {
			return 0, nil
		}
		if dry {
			return 1, nil
		}
		data, contentType, err := readWhole(ctx, target, f)
		if err != nil {
			return 0, err
		}
		e := events.Event{Source: EventSource, Type: events.TypeDocumentWritten, Subject: f.doc, ContentType: contentType, Data: data}
		e.ID = events.DerivedID(Format, f.doc.String(), have.last.String(), "file", f.sum)
		ack, err := target.Append(ctx, f.doc, log.At(have.last), e.WithExtension(events.ExtDoc, f.meta.String()))
		switch {
		case err == nil && ack.Duplicate:
			return 0, nil
		case err == nil:
			return 1, nil
		case !isRace(err):
			return 0, err
		}
		if err := pause(ctx, try); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%s: %w", f.doc, log.ErrConflict)
}

// readWhole gives the data of a file's document: the file, or the list of its
// pieces, each stored before.
func readWhole(ctx context.Context, target formats.Target, f wholeFile) ([]byte, string, error) {
	r, err := f.content()
	if err != nil {
		return nil, "", err
	}
	defer r.Close()
	h := sha256.New()
	var data []byte
	contentType := events.ContentTypeRaw
	if f.size <= wholeLimit(target) {
		var b bytes.Buffer
		if _, err := io.Copy(&b, io.LimitReader(io.TeeReader(r, h), f.size+1)); err != nil {
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
	if hexSum(h) != f.sum {
		return nil, "", errChanged
	}
	return data, contentType, nil
}

// wholeLimit is the size up to which one event holds a file, if need be by
// reference.
func wholeLimit(src formats.Source) int64 { return max(maxValue(src), events.MaxData) }

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
	list.SHA256 = hexSum(whole)
	return rawjson.Marshal(list)
}

// deleteDocument takes a document away, if it is there.
func deleteDocument(ctx context.Context, target formats.Target, doc events.Subject, dry bool) (int, error) {
	for try := range maxTries {
		have, err := load(ctx, target, doc)
		if err != nil || !have.exists {
			return 0, err
		}
		if dry {
			return 1, nil
		}
		e, err := events.New(EventSource, doc, &events.DocumentDeleted{Reason: "the file is gone from the imported folder"})
		if err != nil {
			return 0, err
		}
		e.ID = events.DerivedID(Format, doc.String(), have.last.String(), "gone")
		ack, err := target.Append(ctx, doc, log.At(have.last), e)
		switch {
		case err == nil && ack.Duplicate:
			return 0, nil
		case err == nil:
			return 1, nil
		case !isRace(err):
			return 0, err
		}
		if err := pause(ctx, try); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%s: %w", doc, cmp.Or(ctx.Err(), log.ErrConflict))
}
