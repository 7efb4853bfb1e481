package shapes

import (
	"cmp"
	"strings"
)

// readMedia reads an image, a file, a sound or a document. Makers put its description into the part or into a member
// of it.
func readMedia(r *Reading, role string, b *Object) {
	kind := b.Word("type")
	for _, word := range []string{"image", "audio", "video", "file"} { // image_url, input_audio, file-data
		if strings.Contains(kind, word) {
			kind = word
		}
	}
	r.Add(MediaOf(role, kind, b))
}

// MediaOf takes the members of an image or a file. kind is the media type if the object has none.
func MediaOf(role, kind string, b *Object) Part {
	p := Part{Kind: Media, Role: role}
	p.describe(b)
	format := b.Text("format")
	for _, name := range []string{"source", "image_url", "file", "input_audio", "data", "image"} {
		if inner, ok := b.Object(name); ok {
			p.describe(inner)
			format = cmp.Or(format, inner.Text("format"))
		}
	}
	if p.Media == "" {
		p.Media = strings.TrimSuffix(kind+"/"+format, "/")
	}
	return p
}

// describe adds the object's description of an image or a file, as far as it is missing.
func (p *Part) describe(o *Object) {
	if p.Media == "" {
		p.Media = o.Text("media_type", "mediaType", "mimeType", "mime_type", "contentType")
	}
	if p.Name == "" {
		p.Name = o.Text("filename", "fileName", "displayName", "display_name", "title", "name")
	}
	for _, name := range []string{"url", "file_url", "image_url", "image", "data", "file_data", "encodedData", "base64", "fileUri", "file_uri", "file_id", "fileId"} {
		if text := o.Text(name); text != "" {
			p.hold(text, o.Word("type") == "text")
		}
	}
}

// hold adds the address of an image or file, its text, or its size if the data is here.
func (p *Part) hold(content string, isText bool) {
	head, data, _ := strings.Cut(content, ",")
	switch {
	case isDataURL(content):
		if p.Media == "" {
			p.Media = strings.TrimSuffix(strings.TrimPrefix(head, "data:"), ";base64")
		}
		p.Bytes = decodedLen(data)
	case !isText && isData(content):
		p.Bytes = decodedLen(content)
	default:
		p.Text = Join(p.Text, content)
	}
}

// isData reports whether content is the data of an image or file, not its name, address or text.
func isData(content string) bool {
	return isBase64(content) && len(content) >= 64
}

// decodedLen returns the number of bytes that base64 encodes.
func decodedLen(text string) int64 { return int64(len(strings.TrimRight(text, "="))) * 3 / 4 }
