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

// policy allows a page its own style, by hash, and nothing else: no script, no request,
// no form, whatever is in it.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}()

// The template is escaped by its contexts. It never has a value among its tags or the
// names of attributes.
// It is read when a page is made: no other command waits for it when the program starts.
var pageTemplate = sync.OnceValue(func() *template.Template { return template.Must(template.New("page").Parse(source)) })

// WriteHTML writes the page as HTML.
func (p Page) WriteHTML(w io.Writer) error {
	return pageTemplate().Execute(w, struct {
		Page
		Policy string
		Style  template.CSS
	}{p, policy, template.CSS(style)})
}
