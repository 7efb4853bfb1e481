package ailoop

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Block is a part of a message: one of [TextBlock], [ToolResultBlock],
// [ImageBlock], [DocumentBlock], [ToolCallBlock], [ReasoningBlock] and
// [RedactedReasoningBlock].
type Block interface {
	// tagged returns the name of the block's kind and the value to write.
	tagged() (string, any)
}

// UserBlock is a block that a message of the user can have.
type UserBlock interface {
	Block
	ofUser()
}

// AssistantBlock is a block that a message of the assistant can have.
type AssistantBlock interface {
	Block
	ofAssistant()
}

// CacheControl is a hint for the model's provider, such as "ephemeral", about the end of the cached prompt. It stays
// in memory: it is never written.
type CacheControl string

// TextBlock is a text of the user or the assistant.
type TextBlock struct {
	Text         string       `json:"text"`
	CacheControl CacheControl `json:"-"`
}

// ToolResultBlock is a tool's answer to a call.
type ToolResultBlock struct {
	CallID       string            `json:"call_id"`
	Content      ToolResultContent `json:"content"`
	CacheControl CacheControl      `json:"-"`
}

// ImageBlock is a picture.
type ImageBlock struct {
	Source       MediaSource  `json:"source"`
	CacheControl CacheControl `json:"-"`
}

// DocumentBlock is a document, such as a PDF.
type DocumentBlock struct {
	Source       MediaSource  `json:"source"`
	CacheControl CacheControl `json:"-"`
}

// ToolCallBlock is a call of a tool.
type ToolCallBlock struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"` // any JSON, kept as it is; nil is written as null
}

// ReasoningBlock is the model's reasoning.
type ReasoningBlock struct {
	Text      string  `json:"text"`
	Signature *string `json:"signature"` // null if missing
}

// RedactedReasoningBlock is the model's reasoning in a form that only its provider can read.
type RedactedReasoningBlock struct {
	Data string `json:"data"`
}

// ToolResultContent is the content of a tool's answer.
type ToolResultContent struct {
	Blocks  []ToolResultPart `json:"blocks"`
	IsError bool             `json:"is_error,omitempty"`
}

// ToolResultPart is a part of a tool's answer: a text, or a picture if Image is
// set.
type ToolResultPart struct {
	Text  string
	Image *MediaSource
}

// MediaSource locates the bytes of a picture or document. Type decides which fields count.
type MediaSource struct {
	Type      MediaSourceType
	MediaType string // base64
	Data      string // base64: the bytes, in that encoding
	URL       string // url
	ID        string // file_id
}

// MediaSourceType is the kind of a source.
type MediaSourceType string

// Types of sources.
const (
	SourceBase64 MediaSourceType = "base64"
	SourceURL    MediaSourceType = "url"
	SourceFileID MediaSourceType = "file_id"
)

func (b TextBlock) tagged() (string, any)              { return "Text", b }
func (b ImageBlock) tagged() (string, any)             { return "Image", b }
func (b DocumentBlock) tagged() (string, any)          { return "Document", b }
func (b ReasoningBlock) tagged() (string, any)         { return "Reasoning", b }
func (b RedactedReasoningBlock) tagged() (string, any) { return "RedactedReasoning", b }

func (b ToolCallBlock) tagged() (string, any) {
	if b.Args == nil {
		b.Args = json.RawMessage("null")
	}
	return "ToolCall", b
}

func (b ToolResultBlock) tagged() (string, any) {
	if b.Content.Blocks == nil {
		b.Content.Blocks = []ToolResultPart{}
	}
	return "ToolResult", b
}

func (TextBlock) ofUser()       {}
func (ToolResultBlock) ofUser() {}
func (ImageBlock) ofUser()      {}
func (DocumentBlock) ofUser()   {}

func (TextBlock) ofAssistant()              {}
func (ToolCallBlock) ofAssistant()          {}
func (ReasoningBlock) ofAssistant()         {}
func (RedactedReasoningBlock) ofAssistant() {}

// blockKinds has the readers of blocks by the names of their kinds.
var blockKinds = map[string]func(events.Raw) Block{
	"Text":              blockOf[TextBlock],
	"ToolResult":        blockOf[ToolResultBlock],
	"Image":             blockOf[ImageBlock],
	"Document":          blockOf[DocumentBlock],
	"ToolCall":          func(raw events.Raw) Block { return blockOf[ToolCallBlock](slices.Clone(raw)) }, // raw must not change
	"Reasoning":         blockOf[ReasoningBlock],
	"RedactedReasoning": blockOf[RedactedReasoningBlock],
}

// blockOf reads a block of a known shape.
func blockOf[B Block](raw events.Raw) Block { return decoded[B](raw) }

func decoded[B any](raw events.Raw) B {
	var b B
	mustDecode(raw, &b)
	return b
}

// AppendRawJSON writes the fields that count for the type.
func (s MediaSource) AppendRawJSON(dst []byte) ([]byte, error) {
	switch s.Type {
	case SourceBase64:
		return rawjson.Append(dst, struct {
			Type      MediaSourceType `json:"type"`
			MediaType string          `json:"media_type"`
			Data      string          `json:"data"`
		}{s.Type, s.MediaType, s.Data})
	case SourceURL:
		return rawjson.Append(dst, struct {
			Type MediaSourceType `json:"type"`
			URL  string          `json:"url"`
		}{s.Type, s.URL})
	case SourceFileID:
		return rawjson.Append(dst, struct {
			Type MediaSourceType `json:"type"`
			ID   string          `json:"id"`
		}{s.Type, s.ID})
	}
	return dst, fmt.Errorf("%q is not a source type", s.Type)
}

// ParseRawJSON reads the fields that count for the type.
func (s *MediaSource) ParseRawJSON(raw []byte) error {
	members, err := rawjson.Object(raw)
	if err != nil {
		return err
	}
	s.Type = MediaSourceType(members.Text("type"))
	switch s.Type {
	case SourceBase64:
		s.MediaType, s.Data = members.Text("media_type"), members.Text("data")
	case SourceURL:
		s.URL = members.Text("url")
	case SourceFileID:
		s.ID = members.Text("id")
	}
	return nil
}

// AppendRawJSON writes the part.
func (p ToolResultPart) AppendRawJSON(dst []byte) ([]byte, error) {
	if p.Image != nil {
		return rawjson.Append(dst, struct {
			Type   string      `json:"type"`
			Source MediaSource `json:"source"`
		}{"image", *p.Image})
	}
	return rawjson.Append(dst, struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", p.Text})
}

// ParseRawJSON reads a part.
func (p *ToolResultPart) ParseRawJSON(raw []byte) error {
	members, err := rawjson.Object(raw)
	if err != nil {
		return err
	}
	if members.Text("type") == "image" {
		source, _ := members.Get("source")
		image := decoded[MediaSource](source)
		p.Image = &image
		return nil
	}
	p.Text = members.Text("text")
	return nil
}
