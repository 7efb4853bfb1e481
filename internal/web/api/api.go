// Package api is the HTTP interface of sessions, records and documents, and the one that takes CloudEvents. A list
// answers {"items", "next"}; bytes of a user are never encoded again.
package api

import (
	"cmp"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/prices"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/web"
)

// Limits of one request.
const (
	maxBody   = 20 << 20 // bytes
	smallBody = 1 << 20  // bytes, where a body is a question
	maxList   = 1000     // records or turns of an answer
	maxAnswer = 16 << 20 // bytes of records after which a list ends early
)

var (
	jsonTypes = []string{"application/json"}
	turnTypes = []string{"application/json", "application/x-ndjson", "application/octet-stream"}
)

// Door is the interface of a store.
type Door struct {
	Prices prices.Table // for costs without an amount
}

// Routes returns the table.
func (d Door) Routes() []web.Route {
	return []web.Route{
		{Method: "GET", Pattern: "/v1", Scope: web.Any, Out: about{}, Do: describe},
		{Method: "GET", Pattern: "/v1/sessions", Scope: web.Read, Query: "q kind project agent model status parent since until order limit after", Out: sessionList{}, Do: d.listSessions},
		{Method: "POST", Pattern: "/v1/sessions", Scope: web.Append, Body: maxBody, Types: jsonTypes, In: newSession{}, Out: ack{}, Do: createSession},
		{Method: "GET", Pattern: "/v1/sessions/{id}", Scope: web.Read, Query: "at", Out: reads.State{}, Do: readSession},
		{Method: "GET", Pattern: "/v1/sessions/{id}/turns", Scope: web.Read, Query: "thread at from to last around limit", Out: reads.Turns{}, Do: readTurns},
		{Method: "POST", Pattern: "/v1/sessions/{id}/turns", Scope: web.Append, Query: "thread", Body: maxBody, Types: turnTypes, Out: ack{}, Do: appendTurns},
		{Method: "POST", Pattern: "/v1/sessions/{id}/events", Scope: web.Append, Body: maxBody, Types: turnTypes[:2], Out: ack{}, Do: appendEvents},
		{Method: "GET", Pattern: "/v1/sessions/{id}/records", Scope: web.Read, Query: "after limit", Out: recordList{}, Do: readRecords},
		{Method: "GET", Pattern: "/v1/sessions/{id}/branches", Scope: web.Read, Query: "after limit", Out: reads.Branches{}, Do: readBranches},
		{Method: "GET", Pattern: "/v1/sessions/{id}/diff", Scope: web.Read, Query: "from to limit", Out: reads.Diff{}, Do: readDiff},
		{Method: "GET", Pattern: "/v1/sessions/{id}/strip", Scope: web.Read, Query: "bins", Out: reads.Strip{}, Do: d.readStrip},
		{Method: "POST", Pattern: "/v1/sessions/{id}/plan", Scope: web.Read, Body: smallBody, Types: jsonTypes, In: wish{}, Out: reads.Plan{}, Do: planMove},
		{Method: "POST", Pattern: "/v1/sessions/{id}/move", Scope: web.Move, Body: maxBody, Types: jsonTypes, In: reads.Plan{}, Out: moved{}, Do: makeMove},
		{Method: "POST", Pattern: "/v1/sessions/{id}/fork", Scope: web.Move, Body: smallBody, Types: jsonTypes, In: forkWish{}, Out: ack{}, Do: forkSession},
		{Method: "GET", Pattern: "/v1/records", Scope: web.Read, Query: "after limit", Out: recordList{}, Do: readRecords},
		{Method: "GET", Pattern: "/v1/search", Scope: web.Read, Query: "q session thread role since until kind project all order limit", Out: reads.Hits{}, Do: d.search},
		{Method: "GET", Pattern: "/v1/costs", Scope: web.Read, Query: "by since until zone", Out: reads.Costs{}, Do: d.readCosts},
		{Method: "GET", Pattern: "/v1/documents", Scope: web.Read, Query: "kind prefix owner layer link limit after", Out: documentList{}, Do: listDocuments},
		{Method: "GET", Pattern: "/v1/documents/{kind}/{id}", Scope: web.Read, Query: "at", Out: []byte(nil), Do: readDocument},
		{Method: "PUT", Pattern: "/v1/documents/{kind}/{id}", Scope: web.Append, Body: maxBody, Types: []string{"*"}, In: []byte(nil), Out: revision{}, Do: writeDocument},
		{Method: "DELETE", Pattern: "/v1/documents/{kind}/{id}", Scope: web.Admin, Query: "reason", Out: ack{}, Do: deleteDocument},
		{Method: "GET", Pattern: "/v1/documents/{kind}/{id}/history", Scope: web.Read, Query: "below limit", Out: historyList{}, Do: readHistory},
		{Method: "POST", Pattern: "/v1/events", Scope: web.Append, Body: maxBody, Types: []string{"*"}, Out: acks{}, Do: takeEvents},
		{Method: "OPTIONS", Pattern: "/v1/events", Scope: web.Append, Out: "", Do: allowEvents},
	}
}

// about describes the server to a client.
type about struct {
	Version    string      `json:"version"`
	Durability string      `json:"durability"`
	Token      string      `json:"token"` // its name
	Namespace  string      `json:"namespace"`
	Scopes     []web.Scope `json:"scopes"`
}

func describe(c *web.Call) error {
	return c.JSON(200, about{c.Version(), c.Store.Log.Durability().String(), c.Token.Name, c.Token.Namespace, c.Token.Scopes})
}

func invalid(field, reason string) error { return &events.InvalidError{Field: field, Reason: reason} }

// precondition returns the problem of a condition that does not hold; 0: nothing is there.
func precondition(want, have events.Offset, detail string) error {
	return &web.Problem{Code: "preconditionFailed", Detail: detail, ETag: web.ETag(have), Members: []web.Member{{Name: "want", Value: want}, {Name: "have", Value: have}}}
}

// fix lets the client keep an answer about a position if that is an offset which the session has a record at.
func fix(c *web.Call, at string, offset events.Offset) {
	if named, err := events.ParseOffset(at); err == nil && strings.HasPrefix(at, "@") && named == offset {
		c.Immutable()
	}
}

func orMain(thread string) string { return cmp.Or(thread, events.MainThread) }
