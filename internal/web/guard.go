package web

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// admit checks a request in the order that web.Handler promises: host and path, origin, route and type of the body,
// token, scope, size. Nothing of the body is read. A call without a row was answered.
func (s *Server) admit(a *answer, r *http.Request) (*Call, error) {
	c := &Call{Request: r, server: s, answer: a}
	h := a.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if r.ContentLength != 0 {
		h.Set("Connection", "close") // unless the body is read to its end: else the answer would wait for the rest
	}
	if !slices.Contains(s.env.Hosts, strings.ToLower(r.Host)) {
		h.Set("Connection", "close")
		return c, &Problem{Code: "misdirected", Detail: "the header Host names another server"}
	}
	path := r.URL.EscapedPath()
	if err := checkPath(path); err != nil {
		return c, err
	}
	if err := s.checkOrigin(c); err != nil {
		return c, err
	}
	if s.stopped() {
		h.Set("Connection", "close")
		return c, &Problem{Code: "unavailable", Detail: "the server is stopping", RetryAfter: 1}
	}
	if r.Method == http.MethodOptions && c.origin != "" && r.Header.Get("Access-Control-Request-Method") != "" {
		c.preflight()
		return c, nil
	}
	row, values, others := match(s.routes, r.Method, path)
	if row == nil && len(others) > 0 {
		h.Set("Allow", strings.Join(others, ", "))
		return c, &Problem{Code: "method", Detail: "the path has other methods"}
	}
	if row == nil {
		return c, &Problem{Code: "notFound", Detail: "no such path"}
	}
	c.row, c.values = row, values
	if err := c.checkType(); err != nil {
		return c, err
	}
	return c, s.authorize(c)
}

// authorize checks the token, its scope, and the size that the request announces.
func (s *Server) authorize(c *Call) (err error) {
	row := c.row
	if row.Scope != Public {
		if c.Token, err = s.credential(c.Request); err != nil {
			c.answer.Header().Set("WWW-Authenticate", "Bearer")
			return err
		}
		if row.Scope != Any && !c.Token.Has(row.Scope) {
			return &Problem{Code: "forbidden", Detail: "the token has not the scope " + string(row.Scope), Members: []Member{{"scope", string(row.Scope)}}}
		}
		in, err := s.env.Store.In(c.Token.Namespace)
		if err != nil {
			return err
		}
		c.Store = in.By(c.Token.Source(), c.Token.Name)
	}
	if c.query, err = c.parseQuery(); err != nil {
		return err
	}
	if c.Request.ContentLength > row.Body {
		return tooLarge(row.Body)
	}
	return nil
}

// checkPath refuses paths that could be read as another path.
func checkPath(path string) error {
	refused := &Problem{Code: "invalid", Detail: "the path has an empty or relative segment", Members: []Member{{"field", "path"}}}
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return refused
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
			return refused
		}
	}
	return nil
}

// checkOrigin refuses requests that a page of another origin made, unless that origin is allowed.
func (s *Server) checkOrigin(c *Call) error {
	refused := &Problem{Code: "forbidden", Detail: "requests of this origin are not allowed", Members: []Member{{"scope", "origin"}}}
	values := c.Request.Header.Values("Origin")
	scheme := "http://"
	if s.env.TLS {
		scheme = "https://"
	}
	switch {
	case len(values) > 1:
		return refused
	case len(values) == 1 && slices.Contains(s.env.Origins, values[0]):
		c.origin = values[0]
		h := c.answer.Header()
		h.Set("Access-Control-Allow-Origin", c.origin)
		h.Set("Access-Control-Expose-Headers", "ETag, Location, Retry-After, Tally-Offset, Tally-Durability, Tally-Title, Tally-Owner, Tally-Layer, Tally-Attributes, Tally-Links, Tally-Expires")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		h.Add("Vary", "Origin")
		return nil
	case len(values) == 1 && values[0] != scheme+strings.ToLower(c.Request.Host):
		return refused
	}
	for _, site := range c.Request.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return refused
		}
	}
	return nil
}

// preflight answers the question of a browser before a request of an allowed origin. The answer is the same for all
// paths.
func (c *Call) preflight() {
	h := c.answer.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Content-Encoding, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, "+
		"Tally-Seen, Tally-Title, Tally-Owner, Tally-Layer, Tally-Attributes, Tally-Links, Tally-Expires")
	h.Set("Access-Control-Max-Age", "600")
	c.answer.WriteHeader(http.StatusNoContent)
}

// checkType refuses bodies of other types than those of the row. A browser sends some types without asking before.
func (c *Call) checkType() error {
	if c.row.Body == 0 {
		if c.Request.ContentLength != 0 {
			return &Problem{Code: "invalid", Detail: "this request has no body", Members: []Member{{"field", "body"}}}
		}
		return nil
	}
	values := c.Request.Header.Values("Content-Type")
	refused := &Problem{Code: "unsupportedType", Detail: "the body needs one of these types: " + strings.Join(c.row.Types, ", ")}
	if len(values) != 1 {
		return refused
	}
	media, params, err := mime.ParseMediaType(values[0])
	if err != nil {
		return refused
	}
	any := slices.Contains(c.row.Types, "*")
	if charset := params["charset"]; !any && charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refused
	}
	if !any && !slices.Contains(c.row.Types, media) {
		return refused
	}
	encodings := c.Request.Header.Values("Content-Encoding")
	if len(encodings) > 1 || len(encodings) == 1 && encodings[0] != "gzip" && encodings[0] != "identity" {
		return &Problem{Code: "unsupportedType", Detail: "the body can be encoded with gzip, and with nothing else"}
	}
	c.media, c.zipped = media, len(encodings) == 1 && encodings[0] == "gzip"
	return nil
}

// credential returns the token of a request. It is in the header Authorization, and nowhere else.
func (s *Server) credential(r *http.Request) (*Token, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return nil, &Problem{Code: "unauthenticated", Detail: "the request needs one header Authorization: Bearer TOKEN"}
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, &Problem{Code: "unauthenticated", Detail: "the request needs one header Authorization: Bearer TOKEN"}
	}
	if t := s.env.Tokens.find(text); t != nil {
		return t, nil
	}
	return nil, &Problem{Code: "unauthenticated", Detail: "the token is not valid"}
}

// parseQuery refuses parameters that the row does not have, and those that are given twice.
func (c *Call) parseQuery() (url.Values, error) {
	q, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return nil, invalid("query", "the query is not encoded as a query is")
	}
	for name, values := range q {
		if !slices.Contains(strings.Fields(c.row.Query), name) {
			return nil, invalid("query", "a parameter is not known; known are: "+c.row.Query)
		}
		if len(values) != 1 {
			return nil, invalid(name, "the parameter is given twice")
		}
	}
	return q, nil
}
