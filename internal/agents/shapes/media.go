package shapes

import (
	"cmp"
	"strings"
)

// readMedia reads an image, a file, a sound or a document. What it is and where it is
// stand in the part or in a member of it, as the maker has it.
func readMedia(r *Reading, role string, b *Object) {
	kind := b.Word("type")
	for _, word := range []string{"image", "audio", "video", "file"} { // image_url, input_audio, file-data
		if strings.Contains(kind, word) {
			kind = word
		}
	}
	r.Add(MediaOf(role, kind, b))
}

// MediaOf takes what there is of an image or a file that is called kind.
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

// describe adds what an object says of an image or a file and is not known yet.
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

// hold adds where an image or file is, or its text, or how large it is if it is here.
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

// isData reports whether what stands for an image or file is it, and not its name or
// address, or its text.
func isData(content string) bool {
	return isBase64(content) && len(content) >= 64
}

// decodedLen is how many bytes are in base64.
func decodedLen(text string) int64 { return int64(len(strings.TrimRight(text, "="))) * 3 / 4 }
