package web

import (
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Scope is a right that a token has. No route may have the zero Scope.
type Scope string

// Scopes. Public and Any are of routes alone: they need no token, and a token with any scope.
const (
	Public  Scope = "public"
	Any     Scope = "any"
	Read    Scope = "read"
	Append  Scope = "append"
	Move    Scope = "move"
	Admin   Scope = "admin"
	Metrics Scope = "metrics"
)

// Scopes are those that a token can have.
var Scopes = []Scope{Read, Append, Move, Admin, Metrics}

// Route is a row of the table.
type Route struct {
	Method  string
	Pattern string // a path, in which {name} stands for one segment
	Scope   Scope
	Query   string        // names of the parameters, separated by spaces; others are refused
	Body    int64         // bytes of the body, inflated; 0: the request has no body
	Types   []string      // media types of the body; "*": every one
	Wait    time.Duration // to compute the answer; default: Limits.Answer
	In, Out any           // values of the types of the JSON bodies, for the document of the interface; "" is text
	Do      func(*Call) error
}

// writes reports whether a route may append.
func (r *Route) writes() bool { return r.Scope == Append || r.Scope == Move || r.Scope == Admin }

// checkRoutes panics if a row is incomplete.
func checkRoutes(routes []Route) {
	seen := make(map[string]bool)
	for _, r := range routes {
		name := r.Method + " " + r.Pattern
		shape := r.Method
		for segment := range strings.SplitSeq(r.Pattern, "/") {
			if strings.HasPrefix(segment, "{") {
				segment = "{}"
			}
			shape += "/" + segment
		}
		switch {
		case r.Scope != Public && r.Scope != Any && !slices.Contains(Scopes, r.Scope):
			panic(fmt.Sprintf("web: %s has no scope", name))
		case r.Do == nil || !strings.HasPrefix(r.Pattern, "/") || (r.Body > 0) != (len(r.Types) > 0):
			panic(fmt.Sprintf("web: %s is incomplete", name))
		case seen[shape]:
			panic(fmt.Sprintf("web: %s is in the table twice", name))
		}
		seen[shape] = true
	}
}

// match returns the row for a method and an escaped path, and the values of the path. If only other methods fit, it
// returns those.
func match(routes []Route, method, path string) (row *Route, values map[string]string, others []string) {
	segments := strings.Split(path, "/")
	for i := range routes {
		r := &routes[i]
		found, ok := r.fits(segments)
		switch {
		case !ok:
		case r.Method == method, r.Method == "GET" && method == "HEAD":
			if row == nil || len(found) < len(values) { // a literal segment counts more than a name
				row, values = r, found
			}
		default:
			others = append(others, r.Method)
		}
	}
	return row, values, others
}

// fits matches the pattern with the segments of an escaped path.
func (r *Route) fits(segments []string) (values map[string]string, ok bool) {
	pattern := strings.Split(r.Pattern, "/")
	if len(pattern) != len(segments) {
		return nil, false
	}
	values = make(map[string]string)
	for i, p := range pattern {
		name, is := strings.CutPrefix(p, "{")
		if !is {
			if p != segments[i] {
				return nil, false
			}
			continue
		}
		text, err := url.PathUnescape(segments[i])
		if err != nil || text == "" {
			return nil, false
		}
		values[strings.TrimSuffix(name, "}")] = text
	}
	return values, true
}

func stack() string { return string(debug.Stack()) }
