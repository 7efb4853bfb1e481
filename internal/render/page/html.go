package page

import (
	"crypto/sha256"
	_ "embed" // the template and the style
	"encoding/base64"
	"html/template"
	"io"
	"sync"
)

//go:embed style.css
var style string

//go:embed page.gohtml
var source string

// policy allows a page its own style, by hash, and nothing else: no scripts, no requests and no forms, whatever the
// page contains.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}()

// The template escapes values by context. It never has a value in a tag or in the name of an attribute. It is parsed on
// first use, so that other commands start faster.
var pageTemplate = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(source)) })

// WriteHTML writes the page as HTML.
func (p Page) WriteHTML(w io.Writer) error {
	return pageTemplate().Execute(w, struct {
		Page
		Policy string
		Style  template.CSS
	}{p, policy, template.CSS(style)})
}
