package sessiondir

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// pieceSize is the size of the pieces of a file that is too large for one value.
const pieceSize = events.MaxBlobPart

// pieces is the content of a document of type projector.PiecesType.
type pieces struct {
	Size   int64    `json:"size"`
	SHA256 string   `json:"sha256"`
	Pieces []string `json:"pieces"` // datarefs, in order
}

// Attributes of documents of kind file.
const (
	AttrRoot   = "root"
	attrPath   = "path"   // below the root
	attrMarker = "marker" // of the folder that the file came from
	attrSHA256 = "sha256"
	attrMode   = "mode" // octal; missing for an ordinary file
)

// Stored is a document as the log has it, deleted or not.
type Stored struct {
	Doc    events.Subject
	Last   events.Offset // its last record
	Exists bool
	Meta   events.DocMeta
	Sum    string // SHA-256 of the file that it holds

	Revision    events.Offset // the newest revision
	ContentType string
}

// Load reads a document. If its metadata has no hash, Load hashes the content.
func Load(ctx context.Context, src layouts.Source, doc events.Subject) (Stored, error) {
	d, err := src.Loader().Document(ctx, doc, 0)
	if errors.Is(err, projector.ErrNotFound) {
		return Stored{Doc: doc, Last: d.Head}, nil
	}
	if err != nil {
		return Stored{Doc: doc}, err
	}
	st := Stored{Doc: doc, Last: d.Head, Exists: true, Meta: d.Last().Meta, Revision: d.Last().Offset, ContentType: d.Last().ContentType}
	if st.Sum = st.Meta.Attributes[attrSHA256]; st.Sum == "" {
		h := sha256.New()
		if err := WriteContent(ctx, src, d, h); err != nil {
			return st, err
		}
		st.Sum = HexSum(h)
	}
	return st, nil
}

// writeDocument writes the file that a document held at an offset; 0 is the newest revision.
func writeDocument(ctx context.Context, src layouts.Source, doc events.Subject, at events.Offset, w io.Writer) error {
	d, err := src.Loader().Document(ctx, doc, at)
	if err != nil {
		return err
	}
	return WriteContent(ctx, src, d, w)
}

// WriteContent writes the file that a document holds.
func WriteContent(ctx context.Context, src layouts.Source, d *projector.Document, w io.Writer) error {
	if d.Last().ContentType != projector.PiecesType {
		_, err := w.Write(d.Data)
		return err
	}
	doc := d.Subject
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

// WholeLimit returns the size in bytes up to which one event holds a file, directly or by reference.
func WholeLimit(src layouts.Source) int64 { return max(MaxValue(src), events.MaxData) }

// MaxValue returns the size in bytes of the largest value that a source resolves.
func MaxValue(src layouts.Source) int64 {
	if limit := src.Loader().MaxValue; limit > 0 {
		return limit
	}
	return events.MaxValue
}

// Payload reads and decodes the payload of a record.
func Payload(ctx context.Context, src layouts.Source, at events.Offset) (events.Payload, error) {
	rec, err := src.Loader().Source.Record(ctx, at)
	if err != nil {
		return nil, err
	}
	if rec, err = src.Loader().Whole(ctx, rec); err != nil {
		return nil, err
	}
	f := projector.Decode(rec)
	return f.Payload, f.Invalid
}
