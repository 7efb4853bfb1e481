package events

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// Validate returns an *InvalidError for the first invalid attribute of the event, or, for a type of the vocabulary, the
// first invalid field of its payload. An unknown type with the vocabulary's prefix is invalid, and so is an erased event:
// nobody appends one. The limits of size are not checked here; the log checks them.
func (e Event) Validate() error {
	if err := e.ValidateAttributes(); err != nil {
		return err
	}
	if e.Erased() != "" {
		return invalid(ExtErased, "only the owner of a store erases events")
	}
	if len(e.Type) > MaxIDLen {
		return invalid("type", "has %d bytes, at most %d are allowed", len(e.Type), MaxIDLen)
	}
	info, known := vocabulary[e.Type]
	if !known {
		return checkForeign(e.Type)
	}
	if (info.subject == "session") != e.Subject.IsSession() {
		return invalid("subject", "%s is a type for a %s, but %s is not a %s", e.Type, info.subject, e.Subject, info.subject)
	}
	if e.DataSchema != "" && e.DataSchema != DataSchema(e.Type) {
		return invalid("dataschema", "%q: that of %s is %q", e.DataSchema, e.Type, DataSchema(e.Type))
	}
	if text, ok := e.Extensions[ExtBasis]; ok {
		if at, err := ParseOffset(text); err != nil || at.Padded() != text {
			return invalid(ExtBasis, "%q: want an offset as 20 digits", text)
		}
	}
	if ref, ok := e.Extensions[ExtDataRef]; ok {
		if _, ok := ParseBlobRef(ref); !ok && info.new != nil {
			return invalid(ExtDataRef, "%q: want %s<sha256>", ref, blobURNPrefix)
		}
		if len(e.Data) == 0 {
			return nil // the data are stored elsewhere, and were validated before
		}
	}
	if e.Type == TypeDocumentWritten {
		return e.validateDocument()
	}
	if e.ContentType != "" && !IsJSON(e.ContentType) {
		return invalid("datacontenttype", "%q: the data of %s are JSON", e.ContentType, e.Type)
	}
	if e.isMade() {
		return nil
	}
	_, err := Decode(e.Type, e.Data)
	return err
}

func (e Event) validateDocument() error {
	meta, err := ParseDocMeta(e.Extensions[ExtDoc])
	if err != nil {
		return err
	}
	if e.Subject.Kind != KindBlob {
		return nil
	}
	if !isSHA256(e.Subject.ID) {
		return invalid("subject", "the id of a blob is the SHA-256 of its content in lower-case hex, but %q is not a SHA-256", e.Subject.ID)
	}
	if meta.Part != nil && meta.Part.SHA256 != e.Subject.ID {
		return invalid(ExtDoc, "a part of the content %s cannot be in blob %s", meta.Part.SHA256, e.Subject.ID)
	}
	return nil
}

// ValidateAttributes checks an event of any vocabulary against CloudEvents 1.0 and the limits of what can be stored.
func (e Event) ValidateAttributes() error {
	if err := e.Subject.Validate(); err != nil {
		return err
	}
	return e.checkAttributes()
}

// checkAttributes is ValidateAttributes without the subject.
func (e Event) checkAttributes() error {
	if err := first(attribute("id", e.ID), attribute("source", e.Source), attribute("type", e.Type)); err != nil {
		return err
	}
	if len(e.ID) > MaxIDLen {
		return invalid("id", "has %d bytes, at most %d are allowed", len(e.ID), MaxIDLen)
	}
	if !isURIReference(e.Source) {
		return invalid("source", "%q is no URI reference", e.Source)
	}
	if !e.Time.IsZero() && (!fourDigits(e.Time.Year()) || !fourDigits(e.Time.UTC().Year())) {
		return invalid("time", "the year is %d: want 1 to 9999", e.Time.Year())
	}
	if !isContentType(e.ContentType) {
		return invalid("datacontenttype", "%q is no media type", e.ContentType)
	}
	if e.DataSchema != "" && (!isText(e.DataSchema) || !isURIReference(e.DataSchema)) {
		return invalid("dataschema", "%q is no URI", e.DataSchema)
	}
	return e.checkExtensions()
}

// checkExtensions reports the first error by name, whatever the map's order.
func (e Event) checkExtensions() error {
	for name, value := range e.Extensions {
		if checkExtension(name, value) == nil {
			continue
		}
		for _, name := range sortedKeys(e.Extensions) {
			if err := checkExtension(name, e.Extensions[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkExtension(name, value string) error {
	if err := validateExtensionName(name); err != nil {
		return err
	}
	if !isText(value) {
		return invalid(name, "the value is not printable UTF-8")
	}
	return nil
}

func attribute(name, value string) error {
	if value == "" {
		return invalid(name, "missing")
	}
	if !isText(value) {
		return invalid(name, "the value is not printable UTF-8")
	}
	return nil
}

func fourDigits(year int) bool { return 1 <= year && year <= 9999 }

// isText reports whether s is a CloudEvents String: Unicode without control
// characters and noncharacters.
func isText(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return isUnicodeText(s[i:])
		}
	}
	return true
}

func isUnicodeText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x20 || r >= 0x7f && r < 0xa0 || r&0xfffe == 0xfffe || r >= 0xfdd0 && r <= 0xfdef
	})
}

// isURIReference calls net/url only for text that is not obviously a URI reference: it runs for every event that is
// read.
func isURIReference(s string) bool {
	rest := strings.TrimPrefix(s, "urn:")
	for i := 0; i < len(rest); i++ {
		if c := rest[i]; !isSafe(c) && c != '.' && c != '~' && (c != '/' || strings.HasPrefix(rest, "//")) && (c != ':' || len(rest) == len(s)) {
			_, err := url.Parse(s)
			return err == nil
		}
	}
	return true
}

// isContentType checks the requirements of a header: printable ASCII without white space around it. "" is valid.
func isContentType(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return strings.TrimSpace(s) == s
}

func isCoreAttribute(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data":
		return true
	}
	return false
}

// validateExtensionName returns an *InvalidError unless name is 1 to 20 of [a-z0-9] and not an attribute of CloudEvents
// itself.
func validateExtensionName(name string) error {
	if len(name) < 1 || len(name) > 20 || isCoreAttribute(name) {
		return invalid("extension", "%q: want 1 to 20 of [a-z0-9], and not an attribute of CloudEvents itself", name)
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return invalid("extension", "%q: want 1 to 20 of [a-z0-9]", name)
		}
	}
	return nil
}

// IsJSON reports whether a media type is JSON.
func IsJSON(contentType string) bool {
	media := mediaType(contentType)
	return strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// mediaType returns a content type without its parameters, in lower case.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return lower(strings.TrimSpace(media))
}
